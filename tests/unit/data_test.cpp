// Text, generated rows, sampler and evaluation windows. The numbers of the sampler come from the Python functions
//   def splitmix64(x): m = (1 << 64) - 1; z = (x + 0x9E3779B97F4A7C15) & m; ...
//   at = splitmix64((splitmix64(seed) + microbatch * batch + position) & m) % (len(data) - ctx)
// of a PyTorch program that makes the same batches (microbatch counts through all steps).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <string>

#include "base/error.h"
#include "data/generated.h"
#include "data/sampler.h"
#include "data/text.h"
#include "data/windows.h"

namespace mantissa {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "mantissa-data-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::filesystem::path file(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

template <typename Action>
std::string usage_error_of(Action action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

TEST(Splitmix64, KnownInputs_GivesPythonsNumbers) {
  EXPECT_EQ(splitmix64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(splitmix64(1), 0x910a2dec89025cc1u);
  EXPECT_EQ(splitmix64(42), 0xbdd732262feb6e95u);
  EXPECT_EQ(splitmix64(~uint64_t{0}), 0xe4d971771b652c20u);
}

TEST(Sampler, OneRank_GivesPythonsRows) {
  const Sampler sampler({.seed = 0, .batch = 8, .microbatches = 1, .num_rows = 3930957 - 128});
  EXPECT_THAT(sampler.rows_of(0, 0, {}),
              ElementsAre(1060964, 2782908, 106839, 3520894, 3411796, 1986936, 3043344, 2941477));
}

TEST(Sampler, UnevenRanksAndMicrobatches_GivesPythonsRows) {
  const Sampler sampler({.seed = 0, .batch = 8, .microbatches = 2, .num_rows = 3930957 - 128});
  EXPECT_THAT(sampler.rows_of(7, 1, {0, 3}), ElementsAre(1337014, 2108614));
  EXPECT_THAT(sampler.rows_of(7, 1, {1, 3}), ElementsAre(2672697, 2851506, 3135598));
  EXPECT_THAT(sampler.rows_of(7, 1, {2, 3}), ElementsAre(1329117, 1343455, 363548));
}

TEST(Sampler, LargestSeed_WrapsAsPythons) {
  const Sampler sampler({.seed = ~uint64_t{0}, .batch = 4, .microbatches = 5, .num_rows = 1000 - 16});
  EXPECT_THAT(sampler.rows_of(1, 0, {}), ElementsAre(336, 601, 141, 152));
}

TEST(Sampler, AnyWorldSize_DrawsTheSameStream) {
  const Sampler sampler({.seed = 5, .batch = 13, .microbatches = 3, .num_rows = 5000 - 7});
  const std::vector<uint64_t> whole = sampler.rows_of(4, 2, {0, 1});
  for (int world_size = 2; world_size <= 13; ++world_size) {
    std::vector<uint64_t> joined;
    for (int rank = 0; rank < world_size; ++rank) {
      const std::vector<uint64_t> part = sampler.rows_of(4, 2, {rank, world_size});
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, whole) << world_size;
  }
}

// python: [splitmix64((splitmix64(5) + g) % 2**64) % 2**63 for g in range(4)]
TEST(Sampler, TwoToThe63Rows_GivesPythonsNumbers) {
  const Sampler sampler({.seed = 5, .batch = 4, .num_rows = uint64_t{1} << 63});
  EXPECT_THAT(sampler.rows_of(0, 0, {}),
              ElementsAre(8851510909817143861u, 7024327978588930778u, 2841045272376245609u, 1055292136810799804u));
}

TEST(TextData, ShortestText_HasOneRow) {
  const TemporaryFolder folder;
  const TextData text(folder.file("a", "0123456789ABCDEFG"), 0, 16);
  EXPECT_EQ(text.num_rows(), 1u);
  EXPECT_EQ(text.rows(std::vector<uint64_t>{0}).targets.back(), 'G');
}

TEST(Sampler, FewerRowsThanRanks_IsRefused) {
  const Sampler sampler({.batch = 2, .num_rows = 1000 - 16});
  EXPECT_THAT(usage_error_of([&] { sampler.rows_of(0, 0, {0, 3}); }), HasSubstr("train.batch = 2 rows for 3 ranks"));
}

// python: data = arange(200); rows(data, ctx=4, seed=3, microbatch=2, batch=5, rank=1, world=2)
TEST(RowsAt, SampledStarts_GivesPythonsBatch) {
  std::vector<uint8_t> text(200);
  std::iota(text.begin(), text.end(), uint8_t{0});
  const Sampler sampler({.seed = 3, .batch = 5, .microbatches = 1, .num_rows = 200 - 4});
  const Batch batch = rows_at(text, sampler.rows_of(2, 0, {1, 2}), 4);
  EXPECT_THAT(batch.inputs, ElementsAre(54, 55, 56, 57, 150, 151, 152, 153, 100, 101, 102, 103));
  EXPECT_THAT(batch.targets, ElementsAre(55, 56, 57, 58, 151, 152, 153, 154, 101, 102, 103, 104));
  EXPECT_EQ(batch.rows, 3);
  EXPECT_EQ(batch.num_targets, 12);
}

TEST(TextData, Heldout_IsTheLastPart) {
  const TemporaryFolder folder;
  const TextData text(folder.file("a", "0123456789A"), 0.25, 4);  // floor(0.75 * 11) = 8
  EXPECT_EQ(std::string(text.train().begin(), text.train().end()), "01234567");
  EXPECT_EQ(std::string(text.heldout().begin(), text.heldout().end()), "89A");
}

TEST(TextData, NothingHeldOut_TrainsOnAll) {
  const TemporaryFolder folder;
  const TextData text(folder.file("a", "0123456789"), 0, 4);
  EXPECT_EQ(text.train().size(), 10u);
  EXPECT_TRUE(text.heldout().empty());
}

TEST(TextData, BytesAbove127_StayPositive) {
  const TemporaryFolder folder;
  const TextData text(folder.file("a", "\xff\x80\xfe\x81"), 0, 2);
  EXPECT_THAT(rows_at(text.train(), std::vector<uint64_t>{1}, 2).targets, ElementsAre(254, 129));
}

TEST(TextData, UnusableFile_IsRefusedWithItsNameAndReason) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::filesystem::path& path, double heldout = 0.05) {
    return usage_error_of([&] { TextData(path, heldout, 16); });
  };
  EXPECT_THAT(refusal(folder.path() / "none"), AllOf(HasSubstr("none"), HasSubstr("No such file")));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("Is a directory"));
  EXPECT_THAT(refusal(folder.file("empty", "")), HasSubstr("is empty"));
  EXPECT_THAT(refusal(folder.file("short", std::string(16, 'x')), 0),
              HasSubstr("16 bytes to train on (of 16); need more than"));
  EXPECT_THAT(refusal(folder.file("one", std::string(20, 'x'))), HasSubstr("1 byte is held out"));
  const std::filesystem::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refusal(pipe), HasSubstr("Invalid argument"));
}

TEST(TextData, UnreadableFile_IsRefused) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.file("secret", std::string(100, 'x'));
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const uid_t user = ::geteuid();
  if (user == 0) {
    ASSERT_EQ(::seteuid(65534), 0);  // root may read every file
  }
  const std::string refusal = usage_error_of([&] { TextData(path, 0, 16); });
  if (user == 0) {
    ASSERT_EQ(::seteuid(user), 0);
  }
  EXPECT_THAT(refusal, HasSubstr("Permission denied"));
}

std::vector<uint8_t> counting_text(size_t size) {
  std::vector<uint8_t> text(size);
  std::iota(text.begin(), text.end(), uint8_t{0});
  return text;
}

TEST(Windows, AnySplit_CountsEachTargetOnceAfterItsInput) {
  for (const size_t size : {2, 5, 9, 10, 12, 13, 101}) {
    const std::vector<uint8_t> text = counting_text(size);
    for (const int64_t rows : {1, 3, 4}) {
      std::vector<int> seen(size, 0);
      int64_t counted = 0;
      for (int64_t first = 0; first < num_windows(text, 4); first += rows) {
        const Batch batch = windows_from(text, 4, {first, rows});
        const auto cells = static_cast<size_t>(rows) * 4;
        ASSERT_EQ(batch.inputs.size(), cells);
        ASSERT_EQ(batch.targets.size(), cells);
        counted += batch.num_targets;
        for (size_t i = 0; i < cells; ++i) {
          if (batch.targets[i] == kIgnoredTarget) continue;
          ++seen[static_cast<size_t>(batch.targets[i])];
          EXPECT_EQ(batch.inputs[i] + 1, batch.targets[i]);
        }
      }
      EXPECT_EQ(seen[0], 0);
      for (size_t byte = 1; byte < size; ++byte) EXPECT_EQ(seen[byte], 1) << byte << " of " << size;
      EXPECT_EQ(counted, static_cast<int64_t>(size) - 1);
    }
  }
}

TEST(Windows, LastWindowAndSpareRows_AreIgnored) {
  const std::vector<uint8_t> text = counting_text(7);
  EXPECT_EQ(num_windows(text, 4), 2);
  const Batch first = windows_from(text, 4, {0, 2});
  EXPECT_THAT(first.inputs, ElementsAre(0, 1, 2, 3, 4, 5, 0, 0));
  EXPECT_THAT(first.targets, ElementsAre(1, 2, 3, 4, 5, 6, -100, -100));
  EXPECT_EQ(first.num_targets, 6);
  const Batch spare = windows_from(text, 4, {2, 2});
  EXPECT_EQ(spare.num_targets, 0);
  EXPECT_EQ(spare.rows, 2);
  EXPECT_THAT(spare.targets, testing::Each(kIgnoredTarget));
}

TEST(Windows, NothingHeldOut_AreNone) { EXPECT_EQ(num_windows({}, 4), 0); }

// Numbers of this Python program, whose integers know no overflow:
//   def draws(i): row = splitmix64((splitmix64(seed) + i) % 2**64)
//                 return [sum(splitmix64((row + j) % 2**64) >> s & 0xFFFF for s in (0, 16, 32, 48)) - 131070
//                         for j in range(inputs)]
//   features = [numpy.float32(a) * numpy.float32(3**0.5 / 65536) for a in draws(i)]
//   scores = [sum(a * b for a, b in zip(draws(i), draws(2**64 - 1 - c))) for c in range(classes)]
//   label = scores.index(max(scores))
TEST(GeneratedData, RowsToTrainOn_ArePythons) {
  const GeneratedData data({.seed = 7, .inputs = 4, .classes = 3});
  const Batch batch = data.rows(std::vector<uint64_t>{0, 1, (uint64_t{1} << 63) - 1});
  EXPECT_EQ(batch.rows, 3);
  EXPECT_EQ(batch.num_targets, 3);
  EXPECT_TRUE(batch.inputs.empty());
  EXPECT_THAT(batch.features,
              ElementsAre(-0.6307016015052795F, 0.5181933641433716F, 0.3565800189971924F, -0.89951092004776F,
                          1.192185640335083F, 0.006580820307135582F, 0.33871403336524963F, 0.03752917796373367F,
                          0.4503765404224396F, 1.5717588663101196F, 1.2105274200439453F, 0.9401323199272156F));
  EXPECT_THAT(batch.targets, ElementsAre(2, 1, 1));
}

TEST(GeneratedData, LabelsOfManyInputs_ArePythons) {
  const GeneratedData data({.seed = 0, .inputs = 64, .classes = 10, .heldout_rows = 5});
  std::vector<uint64_t> first(20);
  std::iota(first.begin(), first.end(), uint64_t{0});
  EXPECT_THAT(data.rows(first).targets, ElementsAre(9, 9, 7, 4, 1, 3, 2, 5, 5, 7, 7, 7, 9, 3, 8, 7, 8, 8, 6, 1));
  EXPECT_THAT(data.heldout_rows(0, 5).targets, ElementsAre(4, 5, 8, 8, 6));
}

TEST(GeneratedData, HeldoutRows_ArePythonsAndSpareOnesAreIgnored) {
  const GeneratedData data({.seed = 7, .inputs = 4, .classes = 3, .heldout_rows = 2});
  const Batch batch = data.heldout_rows(1, 2);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.num_targets, 1);
  EXPECT_THAT(batch.features, ElementsAre(2.1436030864715576F, -0.3125757575035095F, 0.7529621124267578F,
                                          0.5319100022315979F, 0, 0, 0, 0));
  EXPECT_THAT(batch.targets, ElementsAre(1, kIgnoredTarget));
  EXPECT_THAT(data.heldout_rows(2, 1).targets, ElementsAre(kIgnoredTarget));
}

TEST(GeneratedData, OtherSeed_HasOtherRowsAndLabels) {
  std::vector<uint64_t> first(20);
  std::iota(first.begin(), first.end(), uint64_t{0});
  const Batch one = GeneratedData({.seed = 1, .inputs = 8, .classes = 5}).rows(first),
              two = GeneratedData({.seed = 2, .inputs = 8, .classes = 5}).rows(first);
  EXPECT_NE(one.features, two.features);
  EXPECT_NE(one.targets, two.targets);
}

TEST(GeneratedData, ManyRows_HaveMeanZeroAndVarianceOne) {
  std::vector<uint64_t> first(2000);
  std::iota(first.begin(), first.end(), uint64_t{0});
  const Batch batch = GeneratedData({.seed = 0, .inputs = 64, .classes = 10}).rows(first);
  double sum = 0, squares = 0;
  for (const double x : batch.features) {
    sum += x;
    squares += x * x;
  }
  const auto count = static_cast<double>(batch.features.size());
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1, 0.01);
}

}  // namespace
}  // namespace mantissa
