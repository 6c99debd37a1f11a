#include "config/reader.h"

#include <algorithm>
#include <cmath>

#include "base/nearest.h"
#include "config/toml_text.h"

namespace mantissa {
namespace {

std::string joined(std::span<const std::string> words) {
  std::string result;
  for (const std::string& word : words) {
    if (!result.empty()) result += ", ";
    result += word;
  }
  return result;
}

std::string in_words(WholeRange range) {
  if (range.max == std::numeric_limits<int64_t>::max()) return "a whole number >= " + std::to_string(range.min);
  return "a whole number from " + std::to_string(range.min) + " to " + std::to_string(range.max);
}

// Integers are accepted for floats; -0.0 counts as 0.
std::optional<double> as_number(const Value& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&value); number != nullptr && !std::isnan(*number)) return *number + 0.0;
  return std::nullopt;
}

const std::string* as_text(const Value& value) {
  if (const auto* word = std::get_if<BareWord>(&value)) return &word->text;
  return std::get_if<std::string>(&value);
}

using Option = decltype(OptionValue::value);

std::optional<Option> as_option(const Value& value) {
  if (const auto* truth = std::get_if<bool>(&value)) return *truth;
  if (const auto* whole = std::get_if<int64_t>(&value)) return *whole;
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* text = as_text(value)) return *text;
  return std::nullopt;
}

std::string in_toml(const Option& option) {
  if (const auto* truth = std::get_if<bool>(&option)) return toml_bool(*truth);
  if (const auto* whole = std::get_if<int64_t>(&option)) return std::to_string(*whole);
  if (const auto* number = std::get_if<double>(&option)) return toml_float(*number);
  return toml_string(std::get<std::string>(option));
}

constexpr TextRule kPath{
    [](std::string_view path) { return !path.empty() && path.find('\0') == std::string_view::npos; },
    "a path in quotes"};

}  // namespace

Section::Section(Reader& reader, std::string_view name, Absent absent) : reader_(reader), name_(name), absent_(absent) {
  const Node* node = reader_.document_.root().find(name);
  if (node == nullptr) return;
  origin_ = node->origin;
  const auto* table = std::get_if<Table>(&node->value);
  if (table != nullptr && !table->is_array) {
    node_ = node;
    return;
  }
  malformed_ = true;
  reader_.problems_.add(origin_, reader_.document_.where(origin_), toml_key(name_),
                        "got " + describe(node->value) + ", need one section [" + name_ + "]");
}

const Node* Section::node(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
  return node_ == nullptr ? nullptr : node_->find(key);
}

bool Section::has(std::string_view key) { return node(key) != nullptr; }

bool Section::boolean(std::string_view key, bool& field) {
  if (const Node* found = node(key)) {
    const bool* value = std::get_if<bool>(&found->value);
    if (value == nullptr) return wrong(key, *found, "true or false");
    field = *value;
  }
  setting(key, toml_bool(field));
  return true;
}

bool Section::whole(std::string_view key, int64_t& field, WholeRange range) {
  if (const Node* found = node(key)) {
    const int64_t* value = std::get_if<int64_t>(&found->value);
    if (value == nullptr || *value < range.min || *value > range.max) return wrong(key, *found, in_words(range));
    field = *value;
  }
  setting(key, std::to_string(field));
  return true;
}

bool Section::whole(std::string_view key, uint64_t& field) {
  auto value = static_cast<int64_t>(field);
  if (!whole(key, value, {.min = 0})) return false;
  field = static_cast<uint64_t>(value);
  return true;
}

bool Section::number(std::string_view key, double& field, NumberRule rule) {
  if (const Node* found = node(key)) {
    const auto value = as_number(found->value);
    if (!value || !rule.holds(*value)) return wrong(key, *found, rule.need);
    field = *value;
  }
  setting(key, toml_float(field));
  return true;
}

bool Section::pair(std::string_view key, std::pair<double&, double&> fields, NumberRule rule) {
  if (const Node* found = node(key)) {
    const auto* array = std::get_if<Array>(&found->value);
    if (array == nullptr || array->items.size() != 2) return wrong(key, *found, rule.need);
    const auto first = as_number(array->items[0].value), second = as_number(array->items[1].value);
    if (!first || !second || !rule.holds(*first) || !rule.holds(*second)) return wrong(key, *found, rule.need);
    fields.first = *first;
    fields.second = *second;
  }
  std::string written = "[";
  written += toml_float(fields.first) + ", " + toml_float(fields.second) + "]";
  setting(key, std::move(written));
  return true;
}

bool Section::text(std::string_view key, std::string& field, TextRule rule) {
  if (const Node* found = node(key)) {
    const std::string* value = as_text(found->value);
    if (value == nullptr || !rule.holds(*value)) return wrong(key, *found, rule.need);
    field = *value;
  }
  setting(key, toml_string(field));
  return true;
}

bool Section::path_as_is(std::string_view key, std::filesystem::path& field) {
  std::string written = field.string();
  if (!text(key, written, kPath)) return false;
  field = written;
  return true;
}

bool Section::path(std::string_view key, std::filesystem::path& field) {
  if (const Node* found = node(key)) {
    const std::string* value = as_text(found->value);
    if (value == nullptr || !kPath.holds(*value)) return wrong(key, *found, kPath.need);
    field = reader_.document_.resolve(*value, found->origin);
  }
  setting(key, toml_string(field.string()));
  return true;
}

bool Section::name_or_path(std::string_view key, std::string& field, TextRule rule) {
  if (const Node* found = node(key)) {
    const std::string* value = as_text(found->value);
    if (value == nullptr || !rule.holds(*value)) return wrong(key, *found, rule.need);
    const bool is_path = value->find('/') != std::string::npos;
    field = is_path ? reader_.document_.resolve(*value, found->origin).string() : *value;
  }
  setting(key, toml_string(field));
  return true;
}

bool Section::word(std::string_view key, size_t& index, std::span<const std::string_view> words) {
  if (const Node* found = node(key)) {
    const std::string* value = as_text(found->value);
    const auto match = value == nullptr ? words.end() : std::find(words.begin(), words.end(), *value);
    if (match == words.end()) {
      std::string need;
      for (size_t i = 0; i < words.size(); ++i) {
        need += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + toml_string(words[i]);
      }
      return wrong(key, *found, need);
    }
    index = static_cast<size_t>(match - words.begin());
  }
  setting(key, toml_string(words[index]));
  return true;
}

void Section::options(std::string_view key, std::vector<OptionValue>& field) {
  const Node* found = node(key);
  if (found == nullptr) return;
  const auto* table = std::get_if<Table>(&found->value);
  if (table == nullptr || table->is_array) {
    wrong(key, *found, "one section [" + dotted(key) + "]");
    return;
  }
  for (const Node& option : table->items) {
    const std::string name = dotted(key) + "." + toml_key(option.key), place = reader_.document_.where(option.origin);
    const auto value = as_option(option.value);
    if (!value) {
      reader_.problems_.add(option.origin, place, name,
                            "got " + describe(option.value) + ", need true, false, a number or a text in quotes");
      continue;
    }
    field.push_back({option.key, *value, place});
    reader_.settings_.push_back({name, in_toml(*value), place});
  }
}

bool Section::required(std::string_view key, std::string_view need) {
  if (has(key)) return true;
  if (malformed_) return false;
  // what the file lacks is told at the file, even where its section came by an override
  const Origin at = origin_.override_number == 0 ? origin_ : Origin{};
  reader_.problems_.add(at, reader_.document_.where(at), dotted(key), "got nothing, need " + std::string(need));
  return false;
}

void Section::idle(std::string_view key, std::string_view cause) {
  if (const Node* found = node(key)) {
    problem(key, "got " + describe(found->value) + ", need it left out: it has no effect with " + std::string(cause));
  }
}

void Section::problem(std::string_view key, const std::string& text) {
  const Origin at = origin(key);
  reader_.problems_.add(at, reader_.document_.where(at), dotted(key), text);
}

Origin Section::origin(std::string_view key) const {
  const Node* found = node_ == nullptr ? nullptr : node_->find(key);
  return found == nullptr ? origin_ : found->origin;
}

std::string Section::where(std::string_view key) const { return reader_.document_.where(origin(key)); }

bool Section::wrong(std::string_view key, const Node& found, const std::string& need) {
  problem(key, "got " + describe(found.value) + ", need " + need);
  return false;
}

void Section::setting(std::string_view key, std::string value) {
  if (node_ == nullptr && absent_ == Absent::off) return;
  const Node* found = node(key);
  reader_.settings_.push_back({dotted(key), std::move(value), found == nullptr ? "default" : where(key)});
}

std::string Section::dotted(std::string_view key) const { return key.empty() ? name_ : name_ + "." + toml_key(key); }

void Section::close() {
  Reader::ClosedSection closed{name_, known_, {}};
  if (node_ != nullptr) {
    for (const Node& item : std::get<Table>(node_->value).items) {
      if (std::find(known_.begin(), known_.end(), item.key) == known_.end()) closed.unknown.push_back(&item);
    }
  }
  reader_.closed_.push_back(std::move(closed));
}

void Reader::close() {
  for (const ClosedSection& section : closed_) {
    for (const Node* node : section.unknown) tell_unknown_key(section, *node);
  }
  for (const Node& node : std::get<Table>(document_.root().value).items) {
    const auto is_it = [&](const ClosedSection& section) { return section.name == node.key; };
    if (std::none_of(closed_.begin(), closed_.end(), is_it)) tell_unknown_section(node);
  }
}

void Reader::tell_unknown_key(const ClosedSection& section, const Node& node) {
  auto meant = owner_of(node.key);
  if (!meant) meant = nearest(node.key, section.keys);
  std::string text = "got an unknown key, need ";
  text += meant ? "a key of [" + section.name + "]; did you mean " + *meant + "?" : "one of " + joined(section.keys);
  tell(node, section.name + "." + toml_key(node.key), text);
}

void Reader::tell_unknown_section(const Node& node) {
  std::vector<std::string> names;
  for (const ClosedSection& section : closed_) names.push_back(section.name);
  const bool is_section = std::holds_alternative<Table>(node.value);
  const auto meant = is_section ? nearest(node.key, names) : owner_of(node.key);
  std::string text = is_section ? "got an unknown section, need " : "got a key outside of all sections, need it in ";
  if (!meant) {
    text += "one of " + joined(names);
  } else {
    text += is_section ? "a known one; did you mean [" + *meant + "]?" : "one; did you mean " + *meant + "?";
  }
  tell(node, toml_key(node.key), text);
}

void Reader::tell(const Node& node, const std::string& key, const std::string& text) {
  problems_.add(node.origin, document_.where(node.origin), key, text);
}

// The first section that knows this very key, as "section.key".
std::optional<std::string> Reader::owner_of(std::string_view key) const {
  for (const ClosedSection& section : closed_) {
    const bool knows = std::find(section.keys.begin(), section.keys.end(), key) != section.keys.end();
    if (knows) return section.name + "." + std::string(key);
  }
  return std::nullopt;
}

}  // namespace mantissa
