#include "comm/rendezvous.h"

#include <charconv>
#include <string_view>

#include "base/environment.h"
#include "base/error.h"

namespace mantissa {
namespace {

// Who tells a process which rank it is.
struct Starter {
  const char* rank;
  const char* world_size;
  const char* missing_place;  // what to do where MASTER_ADDR or MASTER_PORT is not set
};

constexpr Starter kByHand{"RANK", "WORLD_SIZE", "name rank 0's host and a free port of it"};
constexpr Starter kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                           "mpirun -x MASTER_ADDR=HOST_OF_RANK_0 -x MASTER_PORT=29500 ..."};
// Of the step, which may have fewer tasks than the job (SLURM_NTASKS).
constexpr Starter kSlurm{
    "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
    "before srun: export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1) "
    "MASTER_PORT=29500"};
constexpr Starter kOldSlurm{"SLURM_PROCID", "SLURM_NTASKS", kSlurm.missing_place};

// Slurm comes last: what mpirun starts within a Slurm job has the variables of both, and Slurm's are those of mpirun
// itself. A step of one task is `srun --pty bash` or the like.
std::optional<Starter> starter() {
  if (environment("RANK") || environment("WORLD_SIZE")) return kByHand;
  if (environment("OMPI_COMM_WORLD_RANK")) return kOpenMpi;
  if (!environment("SLURM_PROCID") || !environment("SLURM_STEP_ID")) return std::nullopt;
  const Starter slurm = environment("SLURM_STEP_NUM_TASKS") ? kSlurm : kOldSlurm;
  return environment(slurm.world_size).value_or("1") == "1" ? std::nullopt : std::optional(slurm);
}

int integer(const char* name, const std::string& text, int smallest, int largest) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < smallest || value > largest) {
    throw UsageError("environment variable " + std::string(name) + " is \"" + text + "\", need a whole number from " +
                     std::to_string(smallest) + " to " + std::to_string(largest));
  }
  return value;
}

[[noreturn]] void refuse_half(const char* set, const char* absent) {
  throw UsageError(std::string("environment variable ") + absent + " is not set, but its partner " + set +
                   " is: set both, or neither to run one rank");
}

}  // namespace

Rendezvous rendezvous_of(const LocalRank& local) {
  Rendezvous rendezvous;
  rendezvous.rank = local.rank;
  rendezvous.world_size = local.world_size;
  rendezvous.port = local.port;
  rendezvous.listen_fd = local.listen_fd;
  return rendezvous;
}

std::optional<std::string> rank_variable() {
  const auto by = starter();
  if (!by) return std::nullopt;
  return environment(by->rank) ? by->rank : by->world_size;
}

std::optional<Rendezvous> rendezvous_from_environment() {
  const auto by = starter();
  if (!by) return std::nullopt;
  const auto rank = environment(by->rank), world_size = environment(by->world_size);
  if (!rank) refuse_half(by->world_size, by->rank);
  if (!world_size) refuse_half(by->rank, by->world_size);
  Rendezvous found;
  found.world_size = integer(by->world_size, *world_size, 1, 1 << 20);
  found.rank = integer(by->rank, *rank, 0, found.world_size - 1);
  if (found.world_size == 1) return found;
  const auto address = environment("MASTER_ADDR"), port = environment("MASTER_PORT");
  if (!address || !port) {
    throw UsageError(std::string("environment variable ") + (address ? "MASTER_PORT" : "MASTER_ADDR") +
                     " is not set, but " + by->world_size + " = " + *world_size +
                     ": it must say where rank 0 listens; " + by->missing_place);
  }
  found.address = *address;
  found.port = integer("MASTER_PORT", *port, 1, 65535);
  if (by->rank != std::string_view(kByHand.rank)) return found;
  found.store_exists = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  found.store_prefix = environment("TORCHELASTIC_RESTART_COUNT").value_or("");
  return found;
}

}  // namespace mantissa
