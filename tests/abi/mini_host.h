// A host without a model: it answers options, records what a plugin calls, and keeps the text of a failure.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "mantissa/precision.h"
#include "plugin/options.h"

namespace mantissa::testing_support {

class MiniHost {
 public:
  explicit MiniHost(std::vector<CheckedOption> options) : options_(std::move(options)) {
    table_.header = MTS_HEADER(mts_host);
    table_.self = this;
    table_.fail = [](const mts_host* host, mts_status status, const char* text) {
      self(host).failure = text;
      return status;
    };
    table_.option = [](const mts_host* host, const char* key, mts_option* option) {
      return self(host).option(key, *option);
    };
    table_.metric = [](const mts_host* host, const char* key, double value) { self(host).metrics[key] = value; };
    table_.grad_norm = [](const mts_host* host, mts_root given, double norm_type, double* norm) {
      return self(host).note("grad_norm", given, {norm_type}, norm);
    };
    table_.clip_grad_norm = [](const mts_host* host, mts_root given, double max_norm, double norm_type, double* norm) {
      return self(host).note("clip_grad_norm", given, {max_norm, norm_type}, norm);
    };
  }
  MiniHost(const MiniHost&) = delete;
  MiniHost& operator=(const MiniHost&) = delete;

  const mts_host* get() const { return &table_; }

  struct Call {
    std::string service;
    std::vector<double> numbers;
    bool operator==(const Call&) const = default;
  };
  std::vector<Call> calls;
  std::map<std::string, double> metrics;
  std::string failure;
  mts_status service_status = MTS_OK;  // what gradient services return
  const mts_root root{3, 7};

 private:
  static MiniHost& self(const mts_host* host) { return *static_cast<MiniHost*>(host->self); }

  mts_status option(const std::string& key, mts_option& out) {
    for (const CheckedOption& option : options_) {
      if (option.key != key) continue;
      out.type = option.type;
      out.boolean = option.boolean ? 1 : 0;
      out.integer = option.integer;
      out.real = option.real;
      out.string = option.string.c_str();
      return MTS_OK;
    }
    return MTS_ABSENT;
  }

  mts_status note(std::string service, mts_root given, std::vector<double> numbers, double* norm) {
    if (given.index != root.index || given.generation != root.generation) return MTS_STALE;
    calls.push_back({std::move(service), std::move(numbers)});
    *norm = 5.0;
    return service_status;
  }

  mts_host table_{};
  std::vector<CheckedOption> options_;
};

}  // namespace mantissa::testing_support
