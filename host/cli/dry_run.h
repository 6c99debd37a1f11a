// mantissa train --dry-run: what a run would be, for people and programs.
#pragma once
#include "cli/commands.h"
#include "cli/job.h"

namespace mantissa {

/// Prints the plan of units and the memory of a rank; starts nothing and writes nothing. Warns where the machine has
/// less memory than the ranks need. `local_ranks`: of them on this machine.
void print_dry_run(const Job& job, int world_size, int local_ranks, const Program& program);

}  // namespace mantissa
