// From the ends of all ranks to the outcome of the job: which rank failed first, by itself.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "comm/launcher.h"

namespace mantissa {

enum class EndKind {
  success,
  stopped,            ///< in order, on SIGINT, SIGTERM or SIGHUP
  interrupted,        ///< died by a signal that the launcher passed on, before it could end in order
  killed,             ///< died by another signal
  failed,             ///< by itself
  silent,             ///< by itself, without an outcome: exit() in the middle of something
  heard,              ///< because of a peer, which said why or was lost
  ended_by_launcher,  ///< did not end within the grace
};

/// True for ends after which the other ranks cannot go on.
bool breaks_job(EndKind kind);

struct EndedRank {
  int rank = 0;
  EndKind kind = EndKind::success;
  int signal = 0;            ///< that it died by, or 0
  int exit_code = 0;         ///< that the job shall have if this end decides it
  std::string message = {};  ///< without the rank
  std::chrono::steady_clock::time_point when = {};
  std::string observed = {};  ///< of RankOutcome
};

/// "signal 9 (Killed)"
std::string signal_text(int signal);

/// `ends`: all ranks, in the order in which their ends were seen.
///
/// A peer of a killed rank may end before the kill is seen, with an error of its own that is none. So a death by signal
/// counts first if it was seen within half a second of the first broken end. SIGABRT is no such death: a peer whose
/// transport gives up aborts too. Where ranks only say that they lost a peer without a word, those that had to be ended
/// hung, or else those that ended as if all was done left too early.
JobOutcome verdict(const std::vector<EndedRank>& ends);

}  // namespace mantissa
