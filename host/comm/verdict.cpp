#include "comm/verdict.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <optional>

namespace mantissa {
namespace {

using Ends = std::vector<EndedRank>;
constexpr std::chrono::milliseconds kSameMoment(500);

template <typename Predicate>
const EndedRank* first(const Ends& ends, Predicate matches) {
  const auto found = std::find_if(ends.begin(), ends.end(), matches);
  return found == ends.end() ? nullptr : &*found;
}

const EndedRank* first_of(const Ends& ends, EndKind kind) {
  return first(ends, [kind](const EndedRank& end) { return end.kind == kind; });
}

bool is_sudden_death(const EndedRank& end) {
  return end.kind == EndKind::interrupted || (end.kind == EndKind::killed && end.signal != SIGABRT);
}

const EndedRank* death_at_first_break(const Ends& ends) {
  const EndedRank* broken = first(ends, [](const EndedRank& end) { return breaks_job(end.kind); });
  if (!broken) return nullptr;
  return first(ends,
               [&](const EndedRank& end) { return is_sudden_death(end) && end.when <= broken->when + kSameMoment; });
}

const EndedRank* first_by_itself(const Ends& ends) {
  return first(ends, [](const EndedRank& end) { return breaks_job(end.kind) && end.kind != EndKind::heard; });
}

const EndedRank* deciding_end(const Ends& ends) {
  if (const EndedRank* end = death_at_first_break(ends)) return end;
  if (const EndedRank* end = first_by_itself(ends)) return end;
  for (const EndKind kind : {EndKind::heard, EndKind::stopped, EndKind::ended_by_launcher}) {
    if (const EndedRank* end = first_of(ends, kind)) return end;
  }
  return nullptr;
}

// A fault that every rank finds alike (a refused plugin, say) is not one rank's.
bool said_by_all(const Ends& ends, const std::string& message) {
  return std::all_of(ends.begin(), ends.end(),
                     [&](const EndedRank& end) { return end.kind == EndKind::failed && end.message == message; });
}

// "rank 1", "rank 1 and rank 3"; empty if there is none.
std::string names_of(const Ends& ends, EndKind kind) {
  std::vector<int> ranks;
  for (const EndedRank& end : ends) {
    if (end.kind == kind) ranks.push_back(end.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  std::string names;
  for (const int rank : ranks) names += (names.empty() ? "rank " : " and rank ") + std::to_string(rank);
  return names;
}

std::string text_of_lost(const EndedRank& end, const Ends& ends) {
  const std::string hung = names_of(ends, EndKind::ended_by_launcher);
  if (!hung.empty()) return hung + " hung and had to be killed: " + end.observed;
  const std::string early = names_of(ends, EndKind::success);
  if (!early.empty()) return early + " ended before the others were done: " + end.observed;
  return end.message;
}

std::string text_of(const EndedRank& end, const Ends& ends) {
  const std::string name = "rank " + std::to_string(end.rank);
  switch (end.kind) {
    case EndKind::killed: return name + " was killed by " + signal_text(end.signal);
    case EndKind::failed: return said_by_all(ends, end.message) ? end.message : name + " failed: " + end.message;
    case EndKind::silent: return name + " " + end.message;
    case EndKind::heard: return end.observed.empty() ? end.message : text_of_lost(end, ends);
    default: return end.message;  // nobody is to blame
  }
}

}  // namespace

bool breaks_job(EndKind kind) {
  return kind != EndKind::success && kind != EndKind::stopped && kind != EndKind::ended_by_launcher;
}

std::string signal_text(int signal) {
  const char* description = ::sigdescr_np(signal);
  return "signal " + std::to_string(signal) + (description ? " (" + std::string(description) + ")" : "");
}

JobOutcome verdict(const std::vector<EndedRank>& ends) {
  const EndedRank* end = deciding_end(ends);
  return end ? JobOutcome{end->exit_code, text_of(*end, ends), end->kind == EndKind::stopped} : JobOutcome{0, "", true};
}

}  // namespace mantissa
