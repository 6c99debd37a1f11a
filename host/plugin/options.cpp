#include "plugin/options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/nearest.h"
#include "config/toml_text.h"
#include "plugin/toml_scalar.h"

namespace mantissa {
namespace {

constexpr uint64_t kMinor0Size = MTS_END_OF(mts_option_spec, help);
constexpr uint64_t kMaxSpecSize = 1 << 12;
constexpr uint64_t kMaxSpecs = 1 << 12;

std::string text(const char* string) { return string == nullptr ? "" : string; }

bool is_known_type(mts_option_type type) { return type >= MTS_OPTION_BOOL && type <= MTS_OPTION_STRING; }

mts_option_type type_of(const OptionScalar& value) {
  return static_cast<mts_option_type>(value.index()) + MTS_OPTION_BOOL;
}

// Element `index` of a table of which the plugin's elements may be longer than ours.
mts_option_spec raw_spec(const mts_precision& table, uint64_t index) {
  mts_option_spec spec;
  std::memcpy(&spec, reinterpret_cast<const std::byte*>(table.options) + index * table.option_size, sizeof spec);
  return spec;
}

std::vector<std::string> split_choices(std::string_view choices) {
  std::vector<std::string> list;
  while (!choices.empty()) {
    const std::string_view choice = choices.substr(0, choices.find('|'));
    list.emplace_back(choice);
    choices.remove_prefix(std::min(choices.size(), choice.size() + 1));
  }
  return list;
}

template <class T>
std::optional<OptionScalar> scalar(const std::optional<T>& value) {
  if (!value) return {};
  return OptionScalar(*value);
}

std::optional<OptionScalar> parse_scalar(mts_option_type type, std::string_view text) {
  switch (type) {
    case MTS_OPTION_BOOL: return scalar(parse_toml_bool(text));
    case MTS_OPTION_INT: return scalar(parse_toml_int(text));
    case MTS_OPTION_FLOAT: return scalar(parse_toml_float(text));
    case MTS_OPTION_STRING: return scalar(parse_toml_string(text));
    default: return {};
  }
}

bool is_unbounded(const OptionSpec& spec) { return spec.minimum == -INFINITY && spec.maximum == INFINITY; }

// `value` is of the spec's type.
bool is_allowed(const OptionSpec& spec, const OptionScalar& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    const auto exact =
        static_cast<long double>(*integer);  // 64 bits of mantissa: no neighbour of a bound slips through
    return exact >= spec.minimum && exact <= spec.maximum;
  }
  if (const auto* real = std::get_if<double>(&value)) {
    if (std::isnan(*real)) return is_unbounded(spec);
    return *real >= spec.minimum && *real <= spec.maximum;
  }
  if (const auto* string = std::get_if<std::string>(&value)) {
    if (string->find('\0') != std::string::npos) return false;  // a C string would end there
    return spec.choices.empty() || std::ranges::find(spec.choices, *string) != spec.choices.end();
  }
  return true;
}

OptionSpec read_spec(const mts_option_spec& raw, uint64_t index) {
  OptionSpec spec;
  spec.key = text(raw.key);
  const std::string name = "its option " + (spec.key.empty() ? std::to_string(index) : "\"" + spec.key + "\"");
  if (spec.key.empty()) throw BadOptionSpec(name + " has no key; need one");
  if (!is_known_type(raw.type))
    throw BadOptionSpec(name + " has the unknown type " + std::to_string(raw.type) + "; need 1 to 4");
  spec.type = raw.type;
  spec.minimum = raw.minimum;
  spec.maximum = raw.maximum;
  spec.choices = split_choices(text(raw.choices));
  spec.help = text(raw.help);
  const bool is_number = spec.type == MTS_OPTION_INT || spec.type == MTS_OPTION_FLOAT;
  if (is_number && !(spec.minimum <= spec.maximum)) {
    throw BadOptionSpec(name + " has the range " + toml_float(spec.minimum) + " to " + toml_float(spec.maximum) +
                        "; need a minimum that is not above the maximum");
  }
  const std::string default_text = text(raw.default_value);
  const auto default_value = parse_scalar(spec.type, default_text);
  if (!default_value || !is_allowed(spec, *default_value)) {
    throw BadOptionSpec(name + " has the default '" + default_text + "'; need " + requirement(spec) +
                        ", in TOML syntax");
  }
  spec.default_value = *default_value;
  return spec;
}

// The value in the spec's type: integers are accepted for floats.
std::optional<OptionScalar> converted(const OptionSpec& spec, const OptionScalar& value) {
  if (spec.type == MTS_OPTION_FLOAT && std::holds_alternative<int64_t>(value)) {
    return static_cast<double>(std::get<int64_t>(value));
  }
  if (type_of(value) != spec.type) return {};
  return value;
}

CheckedOption checked(const OptionSpec& spec, const OptionScalar& value) {
  CheckedOption option;
  option.key = spec.key;
  option.type = spec.type;
  switch (spec.type) {
    case MTS_OPTION_BOOL: option.boolean = std::get<bool>(value); break;
    case MTS_OPTION_INT: option.integer = std::get<int64_t>(value); break;
    case MTS_OPTION_FLOAT: option.real = std::get<double>(value); break;
    default: option.string = std::get<std::string>(value); break;
  }
  return option;
}

std::string unknown_key(std::span<const OptionSpec> specs, const std::string& key) {
  if (specs.empty()) return "unknown option, the plugin has none; remove it";
  std::vector<std::string> keys;
  for (const OptionSpec& spec : specs) keys.push_back(spec.key);
  if (const auto near = nearest(key, keys)) return "unknown option; did you mean \"" + *near + "\"?";
  std::string list;
  for (const std::string& each : keys) list += (list.empty() ? "" : ", ") + each;
  return "unknown option; need one of " + list;
}

std::string joined(const std::vector<std::string>& lines, std::string_view separator) {
  std::string text;
  for (const std::string& line : lines) text.append(text.empty() ? "" : separator).append(line);
  return text;
}

// Specs hold the bounds of integers as floats: 1e6 reads 1000000 for them.
std::string bound_text(const OptionSpec& spec, double bound) {
  constexpr double exact = 9007199254740992.0;  // 2^53
  const bool whole = std::abs(bound) <= exact && std::trunc(bound) == bound;
  return spec.type == MTS_OPTION_INT && whole ? std::to_string(static_cast<int64_t>(bound)) : toml_float(bound);
}

std::string allowed_range(const OptionSpec& spec) {
  if (is_unbounded(spec)) return "";
  if (spec.minimum == -INFINITY) return "at most " + bound_text(spec, spec.maximum);
  if (spec.maximum == INFINITY) return "at least " + bound_text(spec, spec.minimum);
  return "from " + bound_text(spec, spec.minimum) + " to " + bound_text(spec, spec.maximum);
}

std::string quoted_choices(const OptionSpec& spec) {
  std::vector<std::string> quoted;
  for (const std::string& choice : spec.choices) quoted.push_back(toml_string(choice));
  return joined(quoted, ", ");
}

std::string allowed(const OptionSpec& spec) {
  switch (spec.type) {
    case MTS_OPTION_BOOL: return "true, false";
    case MTS_OPTION_INT:
    case MTS_OPTION_FLOAT: return allowed_range(spec);
    default: return quoted_choices(spec);
  }
}

}  // namespace

std::string toml_value(const OptionScalar& value) {
  switch (type_of(value)) {
    case MTS_OPTION_BOOL: return toml_bool(std::get<bool>(value));
    case MTS_OPTION_INT: return std::to_string(std::get<int64_t>(value));
    case MTS_OPTION_FLOAT: return toml_float(std::get<double>(value));
    default: return toml_string(std::get<std::string>(value));
  }
}

std::string type_name(mts_option_type type) {
  switch (type) {
    case MTS_OPTION_BOOL: return "bool";
    case MTS_OPTION_INT: return "int";
    case MTS_OPTION_FLOAT: return "float";
    default: return "string";
  }
}

std::string requirement(const OptionSpec& spec) {
  const std::string range = allowed_range(spec);
  switch (spec.type) {
    case MTS_OPTION_BOOL: return "true or false";
    case MTS_OPTION_INT: return range.empty() ? "an integer" : "an integer " + range;
    case MTS_OPTION_FLOAT: return range.empty() ? "a number" : "a number " + range;
    default: return spec.choices.empty() ? "a string without NUL" : "one of " + quoted_choices(spec);
  }
}

std::vector<OptionSpec> read_option_specs(const mts_precision& table) {
  if (table.num_options == 0) return {};
  if (table.options == nullptr)
    throw BadOptionSpec("its table says " + std::to_string(table.num_options) + " options, and options is NULL");
  if (table.num_options > kMaxSpecs)
    throw BadOptionSpec("its table says " + std::to_string(table.num_options) + " options; need at most 4096");
  if (table.option_size < kMinor0Size || table.option_size > kMaxSpecSize || table.option_size % 8 != 0) {
    throw BadOptionSpec("its table says option_size " + std::to_string(table.option_size) +
                        "; need sizeof(mts_option_spec), " + std::to_string(kMinor0Size) + " or more");
  }
  std::vector<OptionSpec> specs;
  for (uint64_t i = 0; i < table.num_options; ++i) {
    OptionSpec spec = read_spec(raw_spec(table, i), i);
    if (std::ranges::find(specs, spec.key, &OptionSpec::key) != specs.end()) {
      throw BadOptionSpec("its option \"" + spec.key + "\" is declared twice; need unique keys");
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::vector<CheckedOption> check_options(std::span<const OptionSpec> specs, const std::vector<OptionValue>& values) {
  std::vector<CheckedOption> options;
  for (const OptionSpec& spec : specs) options.push_back(checked(spec, spec.default_value));
  std::vector<std::string> problems;
  for (const OptionValue& given : values) {
    const std::string start = given.where + ": precision.options." + given.key + ": ";
    const auto spec = std::ranges::find(specs, given.key, &OptionSpec::key);
    if (spec == specs.end()) {
      problems.push_back(start + unknown_key(specs, given.key));
      continue;
    }
    const auto value = converted(*spec, given.value);
    if (!value || !is_allowed(*spec, *value)) {
      problems.push_back(start + "got " + toml_value(given.value) + ", need " + requirement(*spec));
      continue;
    }
    options[static_cast<size_t>(spec - specs.begin())] = checked(*spec, *value);
  }
  if (!problems.empty()) throw PluginRefused("bad-option", joined(problems, "\nbad-option: "));
  return options;
}

std::vector<OptionDescription> describe_options(std::span<const OptionSpec> specs) {
  std::vector<OptionDescription> options;
  for (const OptionSpec& spec : specs)
    options.push_back({spec.key, type_name(spec.type), toml_value(spec.default_value), allowed(spec), spec.help});
  return options;
}

}  // namespace mantissa
