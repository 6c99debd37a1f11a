#include "base/nearest.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace mantissa {
namespace {

// Longer words are never a name of ours, and the distance costs the product of both lengths.
constexpr size_t kLongestWord = 64;

std::string lower(std::string_view word) {
  std::string result(word);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

// Optimal string alignment distance (Damerau-Levenshtein without editing a swapped pair again), row by row.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  if (word.empty() || word.size() > kLongestWord) return std::nullopt;
  const std::string typed = lower(word);
  const std::string* best = nullptr;
  size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const size_t limit = std::max<size_t>(1, std::max(typed.size(), candidate.size()) / 3);
    const size_t d = distance(typed, lower(candidate));
    const bool meant = d <= limit && d < std::max(typed.size(), candidate.size());
    if (meant && (best == nullptr || d < best_distance)) {
      best = &candidate;
      best_distance = d;
    }
  }
  if (best != nullptr) return *best;
  if (typed.size() < 3) return std::nullopt;
  const auto longer = std::find_if(candidates.begin(), candidates.end(),
                                   [&](const std::string& candidate) { return lower(candidate).starts_with(typed); });
  return longer == candidates.end() ? std::nullopt : std::optional(*longer);
}

}  // namespace mantissa
