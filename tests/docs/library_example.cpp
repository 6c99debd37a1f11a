// The example of the README, which shows all that follows: a module of one's own, sharded over the ranks.
#include <torch/torch.h>

#include <cstdio>

#include "mantissa/clip.h"
#include "mantissa/fully_shard.h"
#include "mantissa/unit.h"

namespace nn = torch::nn;

struct BlockImpl : nn::Module {  // an ordinary module
  explicit BlockImpl(int64_t width) : linear(register_module("linear", nn::Linear(width, width))) {}
  torch::Tensor forward(torch::Tensor x) { return x + torch::gelu(linear(x)); }
  nn::Linear linear;
};
TORCH_MODULE(Block);

struct NetImpl : nn::Module {
  NetImpl(int64_t width, int layers) : head(register_module("head", nn::Linear(width, 1))) {
    for (int i = 0; i < layers; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), mantissa::Unit<Block>(width)));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& block : blocks) x = block(x);
    return head(x);
  }
  std::vector<mantissa::Unit<Block>> blocks;  // each is gathered, used and freed as one
  nn::Linear head;                            // belongs to the root
};
TORCH_MODULE(Net);

int main() {
  const auto world = mantissa::World::from_env();  // RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; without them one rank
  torch::set_num_threads(1);                       // ranks on one host share its cores
  torch::manual_seed(world.rank());                // the weights are rank 0's, each rank draws data of its own
  auto net = mantissa::fully_shard(Net(32, 4), world);
  torch::optim::AdamW optimizer(net.shards(), torch::optim::AdamWOptions(1e-2));
  for (int step = 0; step <= 100; ++step) {
    const auto x = torch::randn({64, 32});
    const auto loss = torch::mse_loss(net(x), x.sum(1, true));
    loss.backward();  // the shards' gradients are means over the ranks
    const double norm = mantissa::clip_grad_norm_(net.root(), 1.0);
    optimizer.step();
    optimizer.zero_grad();
    const double mean = world.all_reduce(loss.item<double>()) / world.size();
    if (world.rank() == 0 && step % 20 == 0) std::printf("step %d  loss %.4f  grad_norm %.4f\n", step, mean, norm);
  }
}
