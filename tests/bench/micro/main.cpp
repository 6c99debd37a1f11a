// Micro benchmarks of what a step consists of besides the model. `./dev bench` runs them; one thread, as a rank has.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

int main(int argc, char** argv) {
  at::set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
