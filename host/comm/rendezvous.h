// Where the ranks of a job meet, as whoever started them says: this program's launcher, torchrun, srun or mpirun.
#pragma once
#include <optional>
#include <string>

#include "comm/launcher.h"

namespace mantissa {

/// Without a launcher's or the environment's word: one rank.
struct Rendezvous {
  int rank = 0;
  int world_size = 1;
  std::string address = "127.0.0.1";  ///< of rank 0's store
  int port = 0;
  int listen_fd = -1;         ///< rank 0: an inherited listening socket for the store; -1: bind `port`
  bool store_exists = false;  ///< the port already listens (torchrun's agent): all ranks are clients
  std::string store_prefix;   ///< keys of one attempt of a restarted job
};

/// Of a rank that `launch` started.
Rendezvous rendezvous_of(const LocalRank& local);

/// The environment variable by which somebody else has started this process as a rank; nothing if nobody has. RANK or
/// WORLD_SIZE (torchrun, or set by hand) go before OMPI_COMM_WORLD_RANK, and that before SLURM_PROCID. A program that
/// is started in a Slurm job, but not by srun, is no rank.
std::optional<std::string> rank_variable();

/// Rank and number of ranks from that variable and its partner, the meeting place from MASTER_ADDR and MASTER_PORT;
/// nothing without such a variable. Throws UsageError where they contradict each other or cannot be read.
std::optional<Rendezvous> rendezvous_from_environment();

}  // namespace mantissa
