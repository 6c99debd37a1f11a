#include "comm/world.h"

#include "comm/terminate.h"

namespace mantissa {

World World::from_env(std::chrono::seconds timeout) {
  install_terminate_handler();
  return World(std::make_shared<Impl>(rendezvous_from_environment().value_or(Rendezvous{}), timeout));
}

int World::rank() const { return impl_->group.rank(); }
int World::size() const { return impl_->group.world_size(); }
void World::barrier() const { impl_->exchange.agree(Operation::none); }

double World::all_reduce(double value) const {
  std::vector<double> values{value};
  impl_->exchange.all_reduce(values, ReduceOp::sum);
  return values[0];
}

}  // namespace mantissa
