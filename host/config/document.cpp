#include "config/document.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "config/toml_text.h"
#include "config/vet.h"

namespace mantissa {
namespace {

constexpr size_t kLongestDescription = 60;  // bytes

// --- toml++ to Node ---

Value to_value(const toml::node& node);

Node to_node(const toml::key& key, const toml::node& node) {
  const toml::source_position at = key.source().begin;
  return {std::string(key.str()), to_value(node), {0, at.line, at.column}};
}

Table to_table(const toml::table& table) {
  Table result;
  for (auto&& [key, node] : table) result.items.push_back(to_node(key, node));
  // the parser sorts by name; messages and options come in the order of the file
  const auto earlier = [](const Node& a, const Node& b) { return a.origin < b.origin; };
  std::stable_sort(result.items.begin(), result.items.end(), earlier);
  return result;
}

Value to_value(const toml::node& node) {
  if (const auto* table = node.as_table()) return to_table(*table);
  if (const auto* array = node.as_array()) {
    if (array->is_array_of_tables() && !array->empty()) return Table{{}, true};
    Array result;
    for (const toml::node& item : *array) result.items.push_back({"", to_value(item), {}});
    return result;
  }
  if (const auto* value = node.as_boolean()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  if (const auto* value = node.as_string()) return value->get();
  return DateTime{};
}

std::string one_line(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) c = ' ';
  }
  return result;
}

Node parse_file(const std::filesystem::path& file) {
  const std::string text = read_vetted(file);
  try {
    return {"", to_table(toml::parse(std::string_view(text))), {}};
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    throw ConfigError({file.string() + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) +
                       ": TOML syntax: " + one_line(error.description())});
  }
}

// --- overrides ---

bool is_bare_key(std::string_view part) { return !part.empty() && toml_key(part) == part; }

// Words that a shell passes without quotes, and that can stand for a string: names and paths.
bool is_bare_word(std::string_view text) {
  constexpr std::string_view kMarks = "_-./~+@%";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kMarks.find(c) != std::string_view::npos;
  });
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

struct Assignment {
  std::vector<std::string> path;
  std::string_view value;
};

// Splits a.b."c d" = value. Nothing if it is not of that form.
std::optional<Assignment> split(std::string_view text) {
  Assignment result;
  size_t at = 0;
  while (at < text.size()) {
    at = std::min(text.find_first_not_of(" \t", at), text.size());
    if (at == text.size()) return std::nullopt;
    const char quote = text[at];
    const bool quoted = quote == '"' || quote == '\'';
    const size_t begin = quoted ? at + 1 : at;
    const size_t end = quoted ? text.find(quote, begin) : text.find_first_of(".=", begin);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view part = quoted ? text.substr(begin, end - begin) : trimmed(text.substr(begin, end - begin));
    if (!quoted && !is_bare_key(part)) return std::nullopt;
    result.path.emplace_back(part);
    if (result.path.size() > static_cast<size_t>(kDeepestKey)) return std::nullopt;
    at = text.find_first_not_of(" \t", quoted ? end + 1 : end);
    if (at == std::string_view::npos) return std::nullopt;
    if (text[at] == '=') {
      result.value = trimmed(text.substr(at + 1));
      return result;
    }
    if (text[at] != '.') return std::nullopt;
    ++at;
  }
  return std::nullopt;
}

std::optional<Value> parse_value(std::string_view text) {
  const std::string document = "value = " + std::string(text);
  if (document.size() <= kLongestConfig && shallow_enough(document)) {
    try {
      const toml::table table = toml::parse(std::string_view(document));
      if (table.size() == 1) return to_value(*table.get("value"));
    } catch (const toml::parse_error&) {
      // not a TOML value; perhaps a word without quotes
    }
  }
  if (is_bare_word(text)) return BareWord{std::string(text)};
  return std::nullopt;
}

void set_origin(Value& value, const Origin& origin) {
  auto* table = std::get_if<Table>(&value);
  if (table == nullptr) return;
  for (Node& item : table->items) {
    item.origin = origin;
    set_origin(item.value, origin);
  }
}

void put(Node& node, const std::vector<std::string>& path, size_t depth, Value value, const Origin& origin) {
  if (depth == path.size()) {
    node.value = std::move(value);
    node.origin = origin;
    return;
  }
  if (!std::holds_alternative<Table>(node.value)) {  // a key of the file where the override needs a table
    node.value = Table{};
    node.origin = origin;
  }
  auto& items = std::get<Table>(node.value).items;
  auto child = std::find_if(items.begin(), items.end(), [&](const Node& item) { return item.key == path[depth]; });
  if (child == items.end()) child = items.insert(items.end(), Node{path[depth], Table{}, origin});
  put(*child, path, depth + 1, std::move(value), origin);
}

std::string dotted(const std::vector<std::string>& path) {
  std::string result;
  for (const std::string& part : path) {
    if (!result.empty()) result += '.';
    result += toml_key(part);
  }
  return result;
}

// --- descriptions ---

struct Describer {
  std::string operator()(bool value) const { return toml_bool(value); }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return toml_float(value); }
  std::string operator()(const std::string& value) const { return toml_string(value); }
  std::string operator()(const DateTime&) const { return "a date or time"; }
  std::string operator()(const BareWord& value) const { return value.text; }
  std::string operator()(const Table& value) const { return value.is_array ? "an array of tables" : "a table"; }
  std::string operator()(const Array& value) const {
    std::string result = "[";
    for (const Node& item : value.items) {
      if (result.size() > kLongestDescription) break;
      if (result.size() > 1) result += ", ";
      result += std::visit(*this, item.value);
    }
    return result + "]";
  }
};

std::string shortened(std::string text) {
  if (text.size() <= kLongestDescription) return text;
  size_t end = kLongestDescription;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // no half characters
  return text.substr(0, end) + "...";
}

}  // namespace

const Node* Node::find(std::string_view child) const {
  const auto* table = std::get_if<Table>(&value);
  if (table == nullptr) return nullptr;
  const auto is_it = [&](const Node& item) { return item.key == child; };
  const auto found = std::find_if(table->items.begin(), table->items.end(), is_it);
  return found == table->items.end() ? nullptr : &*found;
}

std::string describe(const Value& value) { return shortened(std::visit(Describer{}, value)); }

void Problems::add(const Origin& origin, const std::string& where, const std::string& key, const std::string& text) {
  problems_.push_back({origin, where + ": " + key + ": " + text});
}

void Problems::raise() const {
  if (problems_.empty()) return;
  std::vector<Problem> sorted = problems_;
  const auto earlier = [](const Problem& a, const Problem& b) { return a.origin < b.origin; };
  std::stable_sort(sorted.begin(), sorted.end(), earlier);
  std::vector<std::string> lines;
  for (Problem& problem : sorted) lines.push_back(std::move(problem.line));
  throw ConfigError(std::move(lines));
}

Document::Document(const std::filesystem::path& file) : file_(file), root_(parse_file(file)) {
  std::error_code failed;
  folder_ = std::filesystem::weakly_canonical(std::filesystem::absolute(file).parent_path(), failed);
  if (failed) folder_ = std::filesystem::absolute(file).parent_path();
}

void Document::set(std::string_view assignment, Problems& problems) {
  const auto parts = split(assignment);
  if (!parts) {
    throw UsageError("--set: got " + shortened(one_line(assignment)) +
                     ", need key=value with a dotted key, for example train.batch=8");
  }
  const Origin origin{++overrides_, 1, 1};
  auto value = parse_value(parts->value);
  if (!value) {
    const std::string got = parts->value.empty() ? "nothing after =" : shortened(one_line(parts->value));
    problems.add(origin, where(origin), dotted(parts->path),
                 "got " + got + ", need a TOML value: a string stands in quotes, so for a shell '\"text\"'");
    return;
  }
  set_origin(*value, origin);
  put(root_, parts->path, 0, std::move(*value), origin);
}

std::string Document::where(const Origin& origin) const {
  if (origin.override_number > 0) return "--set";
  return file_.string() + ":" + std::to_string(origin.line) + ":" + std::to_string(origin.column);
}

std::filesystem::path Document::resolve(const std::filesystem::path& path, const Origin& origin) const {
  if (origin.override_number > 0) return std::filesystem::absolute(path).lexically_normal();
  return (folder_ / path).lexically_normal();
}

}  // namespace mantissa
