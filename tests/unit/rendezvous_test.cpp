// Which rank a process is, by the variables of those who start ranks.
#include "comm/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/error.h"
#include "comm/network.h"

namespace mantissa {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

constexpr const char* kAll[] = {"RANK",
                                "WORLD_SIZE",
                                "MASTER_ADDR",
                                "MASTER_PORT",
                                "SLURM_PROCID",
                                "SLURM_NTASKS",
                                "SLURM_LOCALID",
                                "SLURM_STEP_ID",
                                "SLURM_STEP_NUM_TASKS",
                                "OMPI_COMM_WORLD_RANK",
                                "OMPI_COMM_WORLD_SIZE",
                                "TORCHELASTIC_USE_AGENT_STORE",
                                "TORCHELASTIC_RESTART_COUNT"};

void set_only(const Variables& variables) {
  for (const char* name : kAll) ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
}

struct Case {
  std::string name;
  Variables variables;
  std::string by;  // the variable that tells; empty: no rank
  int rank = 0, world_size = 1;
};

void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

const Variables kPlace{{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};

Variables with_place(Variables variables) {
  variables.insert(kPlace.begin(), kPlace.end());
  return variables;
}

class RendezvousOf : public ::testing::TestWithParam<Case> {};

TEST_P(RendezvousOf, Environment_IsRead) {
  const Case& test = GetParam();
  set_only(test.variables);
  EXPECT_EQ(rank_variable().value_or(""), test.by);
  const auto found = rendezvous_from_environment();
  ASSERT_EQ(found.has_value(), !test.by.empty());
  if (!found) return;
  EXPECT_EQ(found->rank, test.rank);
  EXPECT_EQ(found->world_size, test.world_size);
  if (found->world_size == 1) return;
  EXPECT_EQ(found->address, "10.0.0.1");
  EXPECT_EQ(found->port, 29500);
}

const std::vector<Case> kCases = {
    {"Nothing", {}, ""},
    {"OnlyAPlace", kPlace, ""},
    {"ByHand", with_place({{"RANK", "2"}, {"WORLD_SIZE", "3"}}), "RANK", 2, 3},
    {"OneRankNeedsNoPlace", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "RANK", 0, 1},
    {"SrunStep",
     with_place({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "1"}, {"SLURM_STEP_ID", "0"}}),
     "SLURM_PROCID", 5, 8},
    {"SrunStepOfPartOfTheJob",
     with_place({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "3"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
     "SLURM_PROCID", 1, 2},
    {"ScriptOfSbatchIsNoRank", with_place({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}}), ""},
    {"ShellOfSrunIsNoRank", {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}, ""},
    {"Mpirun", with_place({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}), "OMPI_COMM_WORLD_RANK", 1,
     2},
    {"MpirunInASlurmJob",
     with_place({{"OMPI_COMM_WORLD_RANK", "3"},
                 {"OMPI_COMM_WORLD_SIZE", "4"},
                 {"SLURM_PROCID", "0"},
                 {"SLURM_NTASKS", "4"},
                 {"SLURM_STEP_ID", "0"},
                 {"SLURM_STEP_NUM_TASKS", "1"}}),
     "OMPI_COMM_WORLD_RANK", 3, 4},
    {"ByHandGoesBeforeMpirun",
     with_place({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
     "RANK", 0, 4},
    {"EmptyCountsAsUnset", {{"RANK", ""}, {"WORLD_SIZE", ""}}, ""},
};
INSTANTIATE_TEST_SUITE_P(Case, RendezvousOf, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

std::string problem_of(const Variables& variables) {
  set_only(variables);
  try {
    rendezvous_from_environment();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Rendezvous_WrongEnvironment, IsToldByItsVariable) {
  EXPECT_EQ(
      problem_of({{"RANK", "1"}}),
      "environment variable WORLD_SIZE is not set, but its partner RANK is: set both, or neither to run one rank");
  EXPECT_THAT(problem_of(with_place({{"WORLD_SIZE", "2"}})), HasSubstr("RANK is not set"));
  EXPECT_EQ(problem_of(with_place({{"RANK", "2"}, {"WORLD_SIZE", "2"}})),
            "environment variable RANK is \"2\", need a whole number from 0 to 1");
  EXPECT_THAT(problem_of(with_place({{"RANK", "0"}, {"WORLD_SIZE", "two"}})), HasSubstr("WORLD_SIZE is \"two\""));
  EXPECT_THAT(problem_of(with_place({{"RANK", "-1"}, {"WORLD_SIZE", "2"}})), HasSubstr("from 0 to 1"));
  EXPECT_THAT(problem_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}),
              HasSubstr("MASTER_PORT is not set, but WORLD_SIZE = 2"));
  EXPECT_THAT(problem_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}),
              HasSubstr("MASTER_PORT is \"70000\", need a whole number from 1 to 65535"));
  EXPECT_THAT(problem_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}}),
              HasSubstr("MASTER_ADDR is not set, but SLURM_NTASKS = 2: it must say where rank 0 listens; before srun: "
                        "export MASTER_ADDR=$(scontrol show hostnames"));
  EXPECT_THAT(problem_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
              HasSubstr("mpirun -x MASTER_ADDR=HOST_OF_RANK_0 -x MASTER_PORT=29500"));
  EXPECT_THAT(problem_of({{"OMPI_COMM_WORLD_RANK", "0"}}), HasSubstr("OMPI_COMM_WORLD_SIZE is not set"));
}

TEST(Rendezvous_OfTorchrun, UsesTheStoreOfItsAgent) {
  set_only(with_place({{"RANK", "0"},
                       {"WORLD_SIZE", "2"},
                       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                       {"TORCHELASTIC_RESTART_COUNT", "3"}}));
  const auto found = rendezvous_from_environment();
  EXPECT_TRUE(found->store_exists);
  EXPECT_EQ(found->store_prefix, "3");
}

TEST(Network_OfThisMachine, KnowsItsLoopback) {
  EXPECT_THAT(interfaces(), Contains("lo"));
  EXPECT_EQ(way_to("127.0.0.1").from, "127.0.0.1");
  EXPECT_EQ(way_to("127.0.1.1").to, "127.0.1.1");
  EXPECT_TRUE(is_loopback(way_to("localhost").from));
  EXPECT_FALSE(is_loopback("10.0.0.127"));
  EXPECT_EQ(why_unresolved("localhost"), "");
  EXPECT_NE(why_unresolved("no-such-host.invalid"), "");
}

}  // namespace
}  // namespace mantissa
