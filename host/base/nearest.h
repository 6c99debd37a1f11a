// The word that somebody who mistyped most likely meant: for keys, commands, plugins and options.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mantissa {

/// The candidate nearest to `word`: fewest insertions, deletions, replacements and swaps of neighbours, letter case
/// ignored; the first one of equals. Nothing if even the nearest is too far to be meant (over a third of its letters).
/// Where no spelling is near, a candidate that begins with `word` (three letters or more) is taken.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace mantissa
