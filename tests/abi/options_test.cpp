#include "plugin/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "abi/plugin_files.h"
#include "plugin/toml_scalar.h"

namespace mantissa {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::refusal;

constexpr double kInf = std::numeric_limits<double>::infinity();

const mts_option_spec kSpecs[] = {
    {"dtype", MTS_OPTION_STRING, 0, "\"float32\"", 0, 0, "float32|bfloat16", "number format"},
    {"label", MTS_OPTION_STRING, 0, "\"\"", 0, 0, nullptr, "any text"},
    {"interval", MTS_OPTION_INT, 0, "2000", 1, 1e6, nullptr, "steps"},
    {"scale", MTS_OPTION_FLOAT, 0, "65536.0", 1, kInf, nullptr, "first loss scale"},
    {"offset", MTS_OPTION_FLOAT, 0, "nan", -kInf, kInf, nullptr, ""},
    {"enabled", MTS_OPTION_BOOL, 0, "true", 0, 0, nullptr, "whether"},
};

mts_precision table_of(const mts_option_spec* specs, uint64_t count) {
  mts_precision table{};
  table.header = MTS_HEADER(mts_precision);
  table.options = specs;
  table.num_options = count;
  table.option_size = sizeof(mts_option_spec);
  return table;
}

std::vector<OptionSpec> specs() { return read_option_specs(table_of(kSpecs, std::size(kSpecs))); }

const CheckedOption& find(const std::vector<CheckedOption>& options, const std::string& key) {
  return *std::ranges::find(options, key, &CheckedOption::key);
}

TEST(CheckOptions_NothingGiven, TakesDefaults) {
  const auto options = check_options(specs(), {});
  ASSERT_EQ(options.size(), std::size(kSpecs));
  EXPECT_EQ(find(options, "dtype").string, "float32");
  EXPECT_EQ(find(options, "label").string, "");
  EXPECT_EQ(find(options, "interval").integer, 2000);
  EXPECT_EQ(find(options, "scale").real, 65536.0);
  EXPECT_TRUE(std::isnan(find(options, "offset").real));
  EXPECT_TRUE(find(options, "enabled").boolean);
}

TEST(CheckOptions_GivenValues, ReplaceDefaults) {
  const auto options = check_options(specs(), {{"dtype", "bfloat16", "a:1:1"},
                                               {"interval", int64_t{1}, "a:2:1"},
                                               {"scale", int64_t{8}, "a:3:1"},
                                               {"enabled", false, "a:4:1"}});
  EXPECT_EQ(find(options, "dtype").string, "bfloat16");
  EXPECT_EQ(find(options, "interval").integer, 1);
  EXPECT_EQ(find(options, "scale").real, 8.0) << "an integer is accepted for a float";
  EXPECT_EQ(find(options, "scale").integer, 0);
  EXPECT_FALSE(find(options, "enabled").boolean);
}

TEST(CheckOptions_SeveralProblems, AreAllReportedWithTheirPlaces) {
  std::string message;
  const std::string kind = refusal(
      [] {
        check_options(specs(), {{"dtyp", "float32", "run.toml:3:1"},
                                {"interval", 1.5, "run.toml:4:1"},
                                {"interval", int64_t{0}, "run.toml:5:1"},
                                {"scale", std::nan(""), "run.toml:6:1"},
                                {"dtype", "float16", "run.toml:7:1"},
                                {"enabled", int64_t{1}, "run.toml:8:1"},
                                {"label", std::string("a\0b", 3), "--set"}});
      },
      &message);
  EXPECT_EQ(kind, "bad-option");
  EXPECT_EQ(
      message,
      "bad-option: run.toml:3:1: precision.options.dtyp: unknown option; did you mean \"dtype\"?\n"
      "bad-option: run.toml:4:1: precision.options.interval: got 1.5, need an integer from 1 to 1000000\n"
      "bad-option: run.toml:5:1: precision.options.interval: got 0, need an integer from 1 to 1000000\n"
      "bad-option: run.toml:6:1: precision.options.scale: got nan, need a number at least 1.0\n"
      "bad-option: run.toml:7:1: precision.options.dtype: got \"float16\", need one of \"float32\", \"bfloat16\"\n"
      "bad-option: run.toml:8:1: precision.options.enabled: got 1, need true or false\n"
      "bad-option: --set: precision.options.label: got \"a\\u0000b\", need a string without NUL");
}

TEST(CheckOptions_PluginWithoutOptions, RefusesAll) {
  std::string message;
  EXPECT_EQ(refusal([] { check_options({}, {{"x", true, "run.toml:3:1"}}); }, &message), "bad-option");
  EXPECT_THAT(message, HasSubstr("has none"));
}

TEST(CheckOptions_IntegerNextToAWideBound, IsComparedExactly) {
  const mts_option_spec spec = {"n", MTS_OPTION_INT, 0, "0", 0, 9007199254740992.0, nullptr, ""};
  const auto declared = read_option_specs(table_of(&spec, 1));
  EXPECT_NO_THROW(check_options(declared, {{"n", int64_t{9007199254740992}, "w"}}));
  EXPECT_EQ(refusal([&] { check_options(declared, {{"n", int64_t{9007199254740993}, "w"}}); }), "bad-option");
}

std::string problem(const mts_option_spec& spec) {
  try {
    read_option_specs(table_of(&spec, 1));
    return "";
  } catch (const BadOptionSpec& bad) {
    return bad.what();
  }
}

TEST(ReadOptionSpecs_ImplausibleSpec, SaysWhatIsWrong) {
  EXPECT_THAT(problem({nullptr, MTS_OPTION_INT, 0, "1", 0, 9, nullptr, ""}), HasSubstr("no key"));
  EXPECT_THAT(problem({"a", 9, 0, "1", 0, 9, nullptr, ""}), HasSubstr("unknown type 9"));
  EXPECT_THAT(problem({"a", MTS_OPTION_INT, 0, nullptr, 0, 9, nullptr, ""}), HasSubstr("an integer from 0 to 9"));
  EXPECT_THAT(problem({"a", MTS_OPTION_INT, 0, "10", 0, 9, nullptr, ""}), HasSubstr("default '10'"));
  EXPECT_THAT(problem({"a", MTS_OPTION_INT, 0, "1", 9, 0, nullptr, ""}), HasSubstr("range 9.0 to 0.0"));
  EXPECT_THAT(problem({"a", MTS_OPTION_FLOAT, 0, "1", 0, std::nan(""), nullptr, ""}), HasSubstr("range"));
  EXPECT_THAT(problem({"a", MTS_OPTION_STRING, 0, "float32", 0, 0, nullptr, ""}), HasSubstr("TOML syntax"));
  EXPECT_THAT(problem({"a", MTS_OPTION_STRING, 0, "\"c\"", 0, 0, "a|b", ""}), HasSubstr("one of \"a\", \"b\""));
  EXPECT_EQ(problem({"a", MTS_OPTION_FLOAT, 0, "1", 0, 9, nullptr, nullptr}), "");
}

TEST(ReadOptionSpecs_KeyTwice, Throws) {
  const mts_option_spec twice[] = {kSpecs[0], kSpecs[0]};
  EXPECT_THROW(read_option_specs(table_of(twice, 2)), BadOptionSpec);
}

TEST(ReadOptionSpecs_TableWithoutSpecs, Throws) {
  EXPECT_THROW(read_option_specs(table_of(nullptr, 2)), BadOptionSpec);
  mts_precision table = table_of(kSpecs, 2);
  table.option_size = sizeof(mts_option_spec) - 8;
  EXPECT_THROW(read_option_specs(table), BadOptionSpec);
  EXPECT_TRUE(read_option_specs(table_of(nullptr, 0)).empty());
}

// A plugin of a later minor: its elements are longer than ours.
TEST(ReadOptionSpecs_LongerElements, AreReadByTheirOwnSize) {
  struct LaterSpec {
    mts_option_spec spec;
    const char* unit;
  };
  const LaterSpec later[] = {{kSpecs[0], "x"}, {kSpecs[2], "steps"}};
  mts_precision table = table_of(&later[0].spec, 2);
  table.option_size = sizeof(LaterSpec);
  const auto read = read_option_specs(table);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[1].key, "interval");
  EXPECT_EQ(std::get<int64_t>(read[1].default_value), 2000);
}

TEST(DescribeOptions_Specs, SayTypeDefaultAndWhatIsAllowed) {
  EXPECT_TRUE(describe_options({}).empty());
  const std::vector<OptionDescription> options = describe_options(specs());
  ASSERT_EQ(options.size(), std::size(kSpecs));
  const auto named = [&](std::string_view key) { return *std::ranges::find(options, key, &OptionDescription::key); };
  EXPECT_EQ(named("dtype").type, "string");
  EXPECT_EQ(named("dtype").default_value, "\"float32\"");
  EXPECT_EQ(named("dtype").allowed, "\"float32\", \"bfloat16\"");
  EXPECT_EQ(named("dtype").help, "number format");
  EXPECT_EQ(named("interval").allowed, "from 1 to 1000000");
}

TEST(ParseToml_Bool, TakesWordsOnly) {
  EXPECT_EQ(parse_toml_bool("true"), true);
  EXPECT_EQ(parse_toml_bool("false"), false);
  for (const char* bad : {"", "True", "1", "true "}) EXPECT_FALSE(parse_toml_bool(bad)) << bad;
}

TEST(ParseToml_Int, TakesDecimalNumbers) {
  EXPECT_EQ(parse_toml_int("0"), 0);
  EXPECT_EQ(parse_toml_int("+17"), 17);
  EXPECT_EQ(parse_toml_int("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  for (const char* bad : {"", "+", "01", "1.0", "9223372036854775808", "1_000", " 1", "1e3", "+-1"})
    EXPECT_FALSE(parse_toml_int(bad)) << bad;
}

TEST(ParseToml_Float, TakesNumbersInfAndNan) {
  EXPECT_EQ(parse_toml_float("1"), 1.0);
  EXPECT_EQ(parse_toml_float("-1.5e-3"), -1.5e-3);
  EXPECT_EQ(parse_toml_float("+1E+2"), 100.0);
  EXPECT_EQ(parse_toml_float("inf"), kInf);
  EXPECT_EQ(parse_toml_float("-inf"), -kInf);
  EXPECT_TRUE(std::isnan(*parse_toml_float("nan")));
  for (const char* bad : {"", ".5", "1.", "01.0", "1e", "infinity", "0x1p3", "1.0f", "1e999"})
    EXPECT_FALSE(parse_toml_float(bad)) << bad;
}

TEST(ParseToml_String, TakesBasicAndLiteral) {
  EXPECT_EQ(parse_toml_string("\"\""), "");
  EXPECT_EQ(parse_toml_string("\"a\\\"b\\\\\\n\\u00e9\\U0001F600\""), "a\"b\\\n\xc3\xa9\xf0\x9f\x98\x80");
  EXPECT_EQ(parse_toml_string("'a\\n'"), "a\\n");
  for (const char* bad :
       {"", "\"", "a", "\"a", "\"a\"b\"", "\"\\\"", "\"\\q\"", "\"\\ud800\"", "\"\\u12\"", "\"a\nb\""}) {
    EXPECT_FALSE(parse_toml_string(bad)) << bad;
  }
}

}  // namespace
}  // namespace mantissa
