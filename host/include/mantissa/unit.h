// mantissa/unit.h - Unit<Holder>: a module whose parameters are gathered, used and freed as one.
//
// Wrap the blocks of your model: `mantissa::Unit<Block> block(width)` instead of `Block block(width)`. Names stay the
// same, and until the root is sharded (mantissa/fully_shard.h) a Unit is an ordinary module. Forward code is arbitrary:
// loops over units, a unit called twice, tuples and vectors of tensors, in-place operations on a unit's arguments and
// results.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace mantissa {

class UnitState;

namespace detail {

/// One call of a unit's forward: gathers its parameters, sees the tensors that go in and come out, and frees the
/// parameters when the call ends, by an exception too. Under grad mode the backward pass gathers and frees them again.
class ForwardScope {
 public:
  explicit ForwardScope(std::shared_ptr<UnitState> unit);
  ~ForwardScope();
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;
  void input(const at::Tensor& tensor);
  void begin();  ///< all inputs were seen
  void output(const at::Tensor& tensor);

 private:
  struct Call;
  std::shared_ptr<UnitState> unit_;
  std::unique_ptr<Call> call_;
  int exceptions_ = std::uncaught_exceptions();
};

template <class T>
struct is_vector : std::false_type {};
template <class T, class A>
struct is_vector<std::vector<T, A>> : std::true_type {};
template <class T, size_t N>
struct is_vector<std::array<T, N>> : std::true_type {};
template <class T>
struct is_tuple : std::false_type {};
template <class... T>
struct is_tuple<std::tuple<T...>> : std::true_type {};
template <class A, class B>
struct is_tuple<std::pair<A, B>> : std::true_type {};
template <class T>
struct is_optional : std::false_type {};
template <class T>
struct is_optional<std::optional<T>> : std::true_type {};
template <class T>
struct is_map : std::false_type {};
template <class K, class V, class C, class A>
struct is_map<std::map<K, V, C, A>> : std::true_type {};

template <class T, class F>
concept has_own_visitor = requires(T& value, F f) { each_tensor(value, f); };  // found in T's namespace

/// Calls f(const at::Tensor&) for every tensor in `value`. For a type of your own write, in its namespace,
/// `template <class F> void each_tensor(MyType& value, F f) { f(value.x); f(value.y); }`.
template <class T, class F>
void visit_tensors(T& value, F f) {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_base_of_v<at::TensorBase, U>) {
    f(value);
  } else if constexpr (is_vector<U>::value) {
    for (auto& element : value) visit_tensors(element, f);
  } else if constexpr (is_tuple<U>::value) {
    std::apply([&](auto&... elements) { (visit_tensors(elements, f), ...); }, value);
  } else if constexpr (is_optional<U>::value) {
    if (value) visit_tensors(*value, f);
  } else if constexpr (is_map<U>::value) {
    for (auto& [key, element] : value) visit_tensors(element, f);
  } else if constexpr (has_own_visitor<T, F>) {
    each_tensor(value, f);
  } else {
    static_assert(
        std::is_arithmetic_v<U> || std::is_enum_v<U> || std::is_null_pointer_v<U> || std::is_same_v<U, std::string> ||
            std::is_same_v<U, std::string_view>,
        "this argument or result of a Unit's forward may hide a tensor: write each_tensor(T&, F) in the namespace of T "
        "(see mantissa/unit.h)");
  }
}

/// Runs `call(args...)` as one call of `unit`; just runs it if `unit` is null, as before sharding.
template <class Call, class... Args>
auto run_unit(const std::shared_ptr<UnitState>& unit, Call call, Args&... args) {
  if (!unit) return call(args...);
  ForwardScope scope(unit);
  (visit_tensors(args, [&](const at::Tensor& tensor) { scope.input(tensor); }), ...);
  scope.begin();
  auto result = call(args...);
  visit_tensors(result, [&](const at::Tensor& tensor) { scope.output(tensor); });
  return result;
}

}  // namespace detail

/// What every Unit derives from, so that sharding finds it.
class UnitBase {
 public:
  virtual ~UnitBase() = default;
  UnitBase() = default;
  UnitBase(const UnitBase& other) { other.refuse_clone(); }
  UnitBase& operator=(const UnitBase&) = delete;
  void attach(std::shared_ptr<UnitState> unit) { unit_ = std::move(unit); }
  bool attached() const { return unit_ != nullptr; }

 protected:
  /// Throws UsageError once sharded: the parameters of a clone would be freed ones.
  void refuse_clone() const;
  std::shared_ptr<UnitState> unit_;
};

namespace detail {

template <class Impl>
class UnitCall : public Impl, public UnitBase {
 public:
  using Impl::Impl;
  template <class... Args>
  auto call(Args&&... args) {
    return run_unit(unit_, [this](auto&... x) { return Impl::forward(x...); }, args...);
  }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& device = std::nullopt) const override {
    refuse_clone();
    return Impl::clone(device);
  }
};

// A forward of the user's own signature, so that nn::Sequential and nn::AnyModule take a Unit.
template <class Impl, class Forward>
class UnitImpl;
template <class Impl, class Result, class Class, class... Args>
class UnitImpl<Impl, Result (Class::*)(Args...)> : public UnitCall<Impl> {
 public:
  using UnitCall<Impl>::UnitCall;
  Result forward(Args... args) { return this->call(std::forward<Args>(args)...); }
};
template <class Impl, class Result, class Class, class... Args>
class UnitImpl<Impl, Result (Class::*)(Args...) const> : public UnitImpl<Impl, Result (Class::*)(Args...)> {
 public:
  using UnitImpl<Impl, Result (Class::*)(Args...)>::UnitImpl;
};

template <class Holder>
using UnitImplOf = UnitImpl<typename Holder::ContainedType, decltype(&Holder::ContainedType::forward)>;

}  // namespace detail

/// A module holder like `Holder`, whose module is a unit of sharding.
template <class Holder>
class Unit : public torch::nn::ModuleHolder<detail::UnitImplOf<Holder>> {
 public:
  using torch::nn::ModuleHolder<detail::UnitImplOf<Holder>>::ModuleHolder;
  template <class... Args>
  auto operator()(Args&&... args) {
    return this->impl_->call(std::forward<Args>(args)...);
  }
};

}  // namespace mantissa
