// The options of a plugin: what it declares (mts_option_spec), and [precision.options] checked against that.
#pragma once
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "config/config.h"
#include "mantissa/precision.h"
#include "plugin/inspect.h"

namespace mantissa {

/// The alternatives stand in the order of mts_option_type.
using OptionScalar = std::variant<bool, int64_t, double, std::string>;

/// One option that a plugin declares, copied out of its table.
struct OptionSpec {
  std::string key;
  mts_option_type type = MTS_OPTION_BOOL;
  OptionScalar default_value;        ///< of that type
  double minimum = 0, maximum = 0;   ///< inclusive; INT and FLOAT only
  std::vector<std::string> choices;  ///< STRING only; empty: any text
  std::string help;
};

/// One option as the plugin will read it: every declared key has one. The fields of other types are zero.
struct CheckedOption {
  std::string key;
  mts_option_type type = MTS_OPTION_BOOL;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;
  std::string string;
};

/// What is wrong with a table of option specs, for people.
class BadOptionSpec : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reads the specs of a table by the plugin's own element size. Throws BadOptionSpec unless keys are unique and not
/// empty, types known, ranges sensible and defaults allowed.
std::vector<OptionSpec> read_option_specs(const mts_precision& table);

/// The values of a config against `specs`, in the order of `specs`; those that are not given get their default.
/// Throws PluginRefused("bad-option") with a line for each problem: `file:line:column: precision.options.key: got X,
/// need Y`.
std::vector<CheckedOption> check_options(std::span<const OptionSpec> specs, const std::vector<OptionValue>& values);

/// `specs` in words.
std::vector<OptionDescription> describe_options(std::span<const OptionSpec> specs);

/// "true", "16", "1e-05", "\"float32\"": a value as TOML writes it.
std::string toml_value(const OptionScalar& value);
/// "bool", "int", "float" or "string".
std::string type_name(mts_option_type type);
/// What a value must be, e.g. "an integer from 1 to 10" or "one of \"a\", \"b\"".
std::string requirement(const OptionSpec& spec);

}  // namespace mantissa
