// Safetensors: what is written is read back, and hostile files are refused. Exchange with Python's library is checked
// by tests/parity/safetensors_check.py.
#include "weights/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace mantissa {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Safetensors : public testing::Test {
 protected:
  Safetensors() {
    std::string name = (std::filesystem::temp_directory_path() / "mantissa-safetensors-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ / "weights.safetensors";
  }
  ~Safetensors() override { std::filesystem::remove_all(folder_); }

  void put(const std::string& content) const { std::ofstream(path_, std::ios::binary) << content; }
  std::string content() const {
    std::ostringstream text;
    text << std::ifstream(path_, std::ios::binary).rdbuf();
    return text.str();
  }
  // A file with this header and so many bytes of data.
  void put_header(const std::string& json, size_t data_size) const {
    const uint64_t size = json.size();
    std::string length(8, '\0');
    std::memcpy(length.data(), &size, 8);
    put(length + json + std::string(data_size, '\1'));
  }
  std::string refusal() const {
    try {
      SafetensorsFile file(path_);
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "not refused";
  }
  std::string refusal_of(const std::string& json, size_t data_size) const {
    put_header(json, data_size);
    const std::string message = refusal();
    EXPECT_THAT(message, HasSubstr(path_.string()));
    return message;
  }
  size_t files_in_folder() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_, path_;
};

template <typename Action>
std::string checkpoint_error_of(Action action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "no CheckpointError";
}

// What a disk cannot take is no fault of a weights file: the run fails, with exit code 1 as for its other files.
template <typename Action>
std::string write_error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.exit_code() == ExitCode::failed ? error.what() : "another exit code";
  }
  return "no Error";
}

TEST_F(Safetensors, EveryDtype_IsReadBackEqual) {
  using at::ScalarType;
  std::vector<NamedTensor> tensors;
  for (const ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                                at::kChar, at::kByte, at::kBool}) {
    tensors.push_back({std::string("t.") + at::toString(type), at::arange(6).sub(2).reshape({2, 3}).to(type)});
  }
  write_safetensors(path_, tensors);
  const SafetensorsFile file(path_);
  ASSERT_EQ(file.entries().size(), tensors.size());
  for (const NamedTensor& tensor : tensors) {
    const at::Tensor read = file.tensor(tensor.name);
    EXPECT_EQ(read.scalar_type(), tensor.tensor.scalar_type());
    EXPECT_TRUE(at::equal(read, tensor.tensor)) << tensor.name;
  }
}

TEST_F(Safetensors, ScalarsEmptyAndStridedTensors_AreReadBackEqual) {
  const at::Tensor matrix = at::arange(12).reshape({3, 4}).to(at::kFloat);
  write_safetensors(path_, {{"scalar", at::full({}, 2.5)},
                            {"empty", at::empty({0, 4})},
                            {"transposed", matrix.t()},
                            {"column", matrix.select(1, 2)},
                            {"trained", at::ones({2}).requires_grad_()}});
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.tensor("scalar").dim(), 0);
  EXPECT_EQ(file.tensor("scalar").item<float>(), 2.5f);
  EXPECT_EQ(file.tensor("empty").sizes(), (std::vector<int64_t>{0, 4}));
  EXPECT_TRUE(at::equal(file.tensor("transposed"), matrix.t()));
  EXPECT_TRUE(at::equal(file.tensor("column"), matrix.select(1, 2)));
  EXPECT_FALSE(file.tensor("trained").requires_grad());
}

TEST_F(Safetensors, NoTensors_IsAFileToo) {
  write_safetensors(path_, {});
  EXPECT_TRUE(SafetensorsFile(path_).entries().empty());
}

// The bytes are those of Python's library (0.8): larger elements first, then by name; header padded to a multiple of 8.
TEST_F(Safetensors, FileLayout_IsPythons) {
  write_safetensors(path_,
                    {{"b", at::zeros({1})},
                     {"i", at::zeros({1}, at::kLong)},
                     {"a", at::zeros({2, 1})},
                     {"u", at::zeros({3}, at::kByte)}},
                    {{"format", "pt"}});
  std::string header =
      R"({"__metadata__":{"format":"pt"},"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]},"b":{"dtype":"F32","shape":[1],"data_offsets":[16,20]},)"
      R"("u":{"dtype":"U8","shape":[3],"data_offsets":[20,23]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(content().substr(8), header + std::string(23, '\0'));
  EXPECT_EQ(SafetensorsFile(path_).metadata().at("format"), "pt");
}

TEST_F(Safetensors, UnknownName_IsAnError) {
  write_safetensors(path_, {{"a", at::zeros({1})}});
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.find("b"), nullptr);
  EXPECT_THAT(checkpoint_error_of([&] { file.tensor("b"); }),
              AllOf(HasSubstr(path_.string()), HasSubstr("no tensor \"b\"")));
}

TEST_F(Safetensors, UnwritableTensors_AreRefused) {
  EXPECT_THAT(checkpoint_error_of([&] { write_safetensors(path_, {{"a", at::zeros({1})}, {"a", at::ones({1})}}); }),
              HasSubstr("two tensors are called \"a\""));
  EXPECT_THAT(checkpoint_error_of([&] { write_safetensors(path_, {{"c", at::zeros({1}, at::kComplexDouble)}}); }),
              HasSubstr("\"c\" is of type ComplexDouble"));
  EXPECT_THAT(checkpoint_error_of([&] { write_safetensors(path_, {{"\xff", at::zeros({1})}}); }),
              HasSubstr("no UTF-8"));
  EXPECT_THAT(checkpoint_error_of([&] { write_safetensors(path_, {{"__metadata__", at::zeros({1})}}); }),
              HasSubstr("__metadata__"));
  EXPECT_THAT(write_error_of([&] { write_safetensors(folder_ / "no" / "w", {}); }), HasSubstr("No such file"));
  EXPECT_EQ(files_in_folder(), 0u);
}

TEST_F(Safetensors, DiskFull_KeepsTheOldFileAndNothingElse) {
  write_safetensors(path_, {{"a", at::ones({4})}});
  const std::string before = content();
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto previous = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = write_error_of([&] { write_safetensors(path_, {{"a", at::ones({4096})}}); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, previous);
  EXPECT_THAT(message, AllOf(HasSubstr(path_.string()), HasSubstr("File too large")));
  EXPECT_EQ(content(), before);
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(Safetensors, UnusablePath_IsRefused) {
  EXPECT_THAT(refusal(), HasSubstr("No such file"));
  EXPECT_THAT(checkpoint_error_of([&] { SafetensorsFile file(folder_); }), HasSubstr("Is a directory"));
}

TEST_F(Safetensors, ShortFile_IsRefused) {
  put("");
  EXPECT_THAT(refusal(), HasSubstr("has 0 bytes"));
  put("1234567");
  EXPECT_THAT(refusal(), HasSubstr("has 7 bytes"));
  put("In the beginning God created the heaven and the earth.");
  EXPECT_THAT(refusal(), HasSubstr("its header should have"));
}

TEST_F(Safetensors, EveryTruncation_IsRefused) {
  write_safetensors(path_, {{"a", at::ones({4})}, {"b", at::ones({2, 2}, at::kDouble)}});
  const std::string whole = content();
  for (size_t size = 0; size < whole.size(); ++size) {
    put(whole.substr(0, size));
    EXPECT_THAT(refusal(), HasSubstr(path_.string())) << size;
  }
}

TEST_F(Safetensors, HeaderLengthTooLarge_IsRefused) {
  put(std::string(8, '\xff') + "{}");
  EXPECT_THAT(refusal(), HasSubstr("18446744073709551615 bytes; need at most 100000000"));
  put(std::string("\x03\0\0\0\0\0\0\0{}", 10));
  EXPECT_THAT(refusal(), HasSubstr("3 bytes, but only 2 follow"));
}

TEST_F(Safetensors, InvalidJson_IsRefused) {
  EXPECT_THAT(refusal_of("", 0), HasSubstr("no valid JSON"));
  EXPECT_THAT(refusal_of("{\"a\":", 0), HasSubstr("no valid JSON"));
  EXPECT_THAT(refusal_of("{\"\xff\":1}", 0), HasSubstr("no valid JSON"));
  EXPECT_THAT(refusal_of("[]", 0), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal_of(std::string(100'000, '['), 0), HasSubstr("nested too deep"));
}

TEST_F(Safetensors, WrongEntry_IsRefusedWithItsName) {
  EXPECT_THAT(refusal_of(R"({"a":1})", 0), HasSubstr("tensor \"a\": is no object"));
  EXPECT_THAT(refusal_of(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("tensor \"a\": no dtype"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})", 4),
              HasSubstr("dtype \"F4\" is not known"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("dtype is no string"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("shape is [-1]"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4),
              HasSubstr("shape is [1.0]"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4),
              HasSubstr("data_offsets has 1 numbers"));
  EXPECT_THAT(refusal_of(R"({"__metadata__":{"a":1}})", 0), HasSubstr("__metadata__"));
  EXPECT_THAT(refusal_of(R"({"__metadata__":[]})", 0), HasSubstr("__metadata__"));
}

TEST_F(Safetensors, DuplicateName_IsRefused) {
  EXPECT_THAT(
      refusal_of(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
          2),
      HasSubstr("\"a\" is in its header twice"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("\"dtype\" is in its header twice"));
}

TEST_F(Safetensors, WrongOffsets_AreRefused) {
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3),
              HasSubstr("the file has 3 bytes of data"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4), HasSubstr("at 4 to 0"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551615]}})", 4),
              HasSubstr("18446744073709551615"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
              HasSubstr("has 4 bytes of data; its dtype and shape need 8"));
  EXPECT_THAT(
      refusal_of(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
          3),
      HasSubstr("\"b\": its data overlap"));
  EXPECT_THAT(
      refusal_of(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
          4),
      HasSubstr("a hole before"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3),
              HasSubstr("2 bytes together, the file has 3"));
}

TEST_F(Safetensors, ShapeThatOverflows_IsRefused) {
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
              HasSubstr("too large"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4,0],"data_offsets":[0,0]}})", 0),
              HasSubstr("too large"));
  std::string many = "1";
  for (int i = 0; i < 64; ++i) many += ",1";
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"U8","shape":[)" + many + R"(],"data_offsets":[0,1]}})", 1),
              HasSubstr("too large"));
}

TEST_F(Safetensors, UnalignedTensor_IsReadAllTheSame) {
  put_header(
      R"({"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"f":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
      5);
  uint32_t bits = 0x01010101;
  float expected = 0;
  std::memcpy(&expected, &bits, 4);
  EXPECT_EQ(SafetensorsFile(path_).tensor("f").item<float>(), expected);
}

}  // namespace
}  // namespace mantissa
