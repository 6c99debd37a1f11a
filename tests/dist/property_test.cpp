// Properties of norms and clipping over random roots: shapes, placements, units, number formats, world sizes 1 to 5 and
// norm types, from a fixed seed. Gradients range over all that their type holds.
#include <cmath>
#include <cstring>
#include <random>

#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include "grad/gradients.h"
#include "mantissa/clip.h"
#include "run_cases/case_root.h"
#include "support/ranks.h"

namespace mantissa {
namespace {

using cases::CaseRoot;
using cases::json;

constexpr int kRoots = 80;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct RandomRoot {
  json params = json::array();
  std::vector<double> counted;  // every gradient element that counts in the norm, once
  double norm_type = 2, max_norm = 1;
};

double rounded_to(const std::string& dtype, double value) {
  if (dtype == "float32") return static_cast<double>(static_cast<float>(value));
  if (dtype == "bfloat16") return static_cast<double>(BFloat16(static_cast<float>(value)));
  if (dtype == "float16") return static_cast<double>(Half(static_cast<float>(value)));
  return value;
}

class Generator {
 public:
  explicit Generator(int seed) : random_(static_cast<unsigned>(seed)) {}

  RandomRoot root() {
    RandomRoot root;
    const std::string dtype = pick({"float32", "float64", "bfloat16", "float16"});
    const int count = whole(1, 6);
    for (int i = 0; i < count; ++i) add_parameter(root, dtype, "p" + std::to_string(i));
    root.norm_type = std::vector<double>{0.5, 1, 2, 2, 2, 3, 16, kInfinity}[static_cast<size_t>(whole(0, 7))];
    root.max_norm = std::pow(10.0, whole(-2, 6));
    return root;
  }

 private:
  int whole(int from, int to) { return std::uniform_int_distribution<int>(from, to)(random_); }
  double real(double from, double to) { return std::uniform_real_distribution<double>(from, to)(random_); }
  std::string pick(const std::vector<std::string>& from) {
    return from[static_cast<size_t>(whole(0, static_cast<int>(from.size()) - 1))];
  }

  void add_parameter(RandomRoot& root, const std::string& dtype, const std::string& name) {
    const std::string placement = pick({"sharded", "sharded", "sharded", "replicated", "frozen", "nograd"});
    const int rows = whole(0, 9), columns = whole(1, 7);
    const double exponent = dtype == "float16" ? real(-6, 3) : dtype == "float64" ? real(-250, 250) : real(-36, 36);
    std::vector<double> gradient;
    for (int i = 0; i < rows * columns; ++i) {
      const double size = whole(0, 9) == 0 ? 0 : std::pow(10.0, exponent + real(-2, 1));
      gradient.push_back(rounded_to(dtype, real(-1, 1) * size));
    }
    json p{{"name", name}, {"shape", {rows, columns}}, {"dtype", dtype}, {"placement", placement}, {"grad", gradient}};
    if (whole(0, 1) == 1) p["unit"] = whole(0, 2);
    if (placement == "nograd") p["grad"] = nullptr;
    if (placement == "sharded" || placement == "replicated")
      root.counted.insert(root.counted.end(), gradient.begin(), gradient.end());
    root.params.push_back(p);
  }

  std::mt19937_64 random_;
};

// In long double, which has range and digits to spare.
double exact_norm(const std::vector<double>& values, double p) {
  long double largest = 0, sum = 0;
  for (const double value : values) largest = std::max(largest, std::fabs(static_cast<long double>(value)));
  if (p == kInfinity || largest == 0) return static_cast<double>(largest);
  for (const double value : values)
    sum += std::pow(std::fabs(static_cast<long double>(value)) / largest, static_cast<long double>(p));
  return static_cast<double>(std::pow(sum, 1 / static_cast<long double>(p)) * largest);
}

// Gradients are set on memory that was NaN everywhere, padding included: what leaks, shows.
void set_gradients(CaseRoot& built, const json& params) {
  for (FlatParameter* flat : built.root().trainable()) {
    at::Tensor shard = flat->shard();
    shard.mutable_grad() = at::full_like(shard.detach(), std::nan(""));
  }
  for (json p : params) {
    if (p.at("grad").is_null()) {
      const size_t numel = p.at("shape")[0].get<size_t>() * p.at("shape")[1].get<size_t>();
      p["grad"] = std::vector<double>(numel, 0.0);
    }
    built.set_gradient(p);
  }
}

// Of all trainable parameters that every rank holds whole.
std::vector<double> replicated_bits(CaseRoot& built) {
  std::vector<double> bits;
  const std::vector<TrainablePiece>& pieces = built.root().trainable_pieces();
  for (const TrainablePiece& piece : pieces) {
    if (!piece.flat->replicated()) continue;
    const at::Tensor values = piece.flat->shard().grad().narrow(0, piece.shard_offset, piece.numel).to(at::kDouble);
    bits.insert(bits.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  }
  return bits;
}

bool same_on_all_ranks(const World& world, const std::vector<double>& mine) {
  const std::vector<double> all = world.impl().transport->all_gather(mine);
  for (size_t at = 0; at < all.size(); at += mine.size()) {
    if (std::memcmp(all.data() + at, mine.data(), mine.size() * sizeof(double)) != 0) return false;
  }
  return true;
}

class Property : public ::testing::TestWithParam<int> {};

TEST_P(Property, OfRandomRoots_NormIsExactAndClippingHoldsIt) {
  test::on_ranks(GetParam(), [](const World& world) {
    for (int seed = 0; seed < kRoots; ++seed) {
      const RandomRoot random = Generator(seed).root();
      CaseRoot built(random.params, world);
      set_gradients(built, random.params);
      const std::string what = "seed " + std::to_string(seed) + ", rank " + std::to_string(world.rank());

      const double want = exact_norm(random.counted, random.norm_type);
      const double norm = clip_grad_norm_(built.root(), random.max_norm, random.norm_type);
      EXPECT_NEAR(norm, want, 1e-12 * want) << what;
      EXPECT_TRUE(same_on_all_ranks(world, {norm})) << what;

      // Gradients are rounded to their type after clipping: a 16-bit norm may round up by half a unit.
      const double digit = random.params[0].at("dtype") == "bfloat16"  ? 0x1p-8
                           : random.params[0].at("dtype") == "float16" ? 0x1p-11
                                                                       : 1e-6;
      const double after = total_norm(built.root(), random.norm_type);
      EXPECT_LE(after, std::min(want, random.max_norm) * (1 + digit)) << what;

      // Clipping again changes nothing but by the 1e-6 of the formula and the rounding.
      clip_grad_norm_(built.root(), random.max_norm, random.norm_type);
      const double again = total_norm(built.root(), random.norm_type);
      EXPECT_NEAR(again, after, (1e-6 / random.max_norm + 2 * digit) * after) << what;
      EXPECT_TRUE(same_on_all_ranks(world, replicated_bits(built))) << what;

      clip_grad_value_(built.root(), 0);
      EXPECT_EQ(total_norm(built.root(), 1), 0) << what;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Property, ::testing::Values(1, 2, 3, 4, 5));

}  // namespace
}  // namespace mantissa
