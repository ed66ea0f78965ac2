// Status and Result: how every fallible function of AxCCL reports errors.
//
// The message is written where the error is decided. It names the call, the object, what was found and what to do;
// callers pass it on unchanged. An OK status is one null pointer. Values are movable and copyable and share their text.
// Several threads may use copies, but not the same object at once.
//
// Nothing here throws, because a status must also be able to report that memory has run out, in places that may not
// throw. If there is no memory for a text, the status keeps its code and a fixed text says so.
#pragma once

#include <cxxabi.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace axccl {

// The values equal those of ncclResult_t, so src/api converts by value.
enum class Code : uint8_t {
  kOk = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
  kTimeout = 8,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) noexcept;
  Status(const Status& other) noexcept : rep_(other.rep_) {
    if (rep_ != nullptr) rep_->holders.fetch_add(1, std::memory_order_relaxed);
  }
  Status(Status&& other) noexcept : rep_(std::exchange(other.rep_, nullptr)) {}
  Status& operator=(const Status& other) noexcept {
    Status copy(other);
    std::swap(rep_, copy.rep_);
    return *this;
  }
  Status& operator=(Status&& other) noexcept {
    Status taken(std::move(other));
    std::swap(rep_, taken.rep_);
    return *this;
  }
  ~Status() {
    if (rep_ != nullptr) LetGo(rep_);
  }

  // Makes a status when there is no memory for a text, or for kInProgress, which needs no text.
  static Status WithoutText(Code code) noexcept;

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  // Empty when ok; otherwise ends with a zero byte. Valid as long as this object.
  std::string_view message() const { return rep_ ? rep_->message : std::string_view(); }

 private:
  struct Rep {
    std::atomic<uint32_t> holders;
    Code code;
    std::string text;
    std::string_view message;
  };
  static void LetGo(Rep* rep) noexcept;

  Rep* rep_ = nullptr;
};

// Builds a status from a printf format.
[[gnu::format(printf, 2, 3)]] Status MakeStatus(Code code, const char* format, ...) noexcept;
// As MakeStatus with kSystemError; appends ": <strerror(error)> (errno N)".
[[gnu::format(printf, 2, 3)]] Status SystemError(int error, const char* format, ...) noexcept;
// Returns the same status with "<before>: " in front of its text, for a call that a lower layer does not know. OK stays
// OK.
Status Prefixed(const char* before, const Status& status) noexcept;
// Converts the exception that is being handled and that interrupted `call`: kSystemError when memory or threads ran
// out, else kInternalError. For handlers that no exception may pass.
Status StatusOfException(const char* call) noexcept;
// Returns what fn() returns (a Status or a Result), or the status of the exception that it throws.
template <class Fn>
auto CatchAll(const char* call, Fn&& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (abi::__forced_unwind&) {
    throw;  // the thread is being cancelled
  } catch (...) {
    return StatusOfException(call);
  }
}

// Holds a value, or the status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}         // NOLINT: implicit by design
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}  // NOLINT: implicit by design

  bool ok() const { return state_.index() == 0; }
  Status status() const { return ok() ? Status() : std::get<1>(state_); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  T& operator*() & { return std::get<0>(state_); }

 private:
  std::variant<T, Status> state_;
};

// The status of a Result or of a Status, for the macros below.
template <class T>
Result<T> Prefixed(const char* before, Result<T> result) {
  if (result.ok()) return result;
  return Prefixed(before, result.status());
}

#define AXCCL_CONCAT_(a, b) a##b
#define AXCCL_CONCAT(a, b) AXCCL_CONCAT_(a, b)
// Returns from the enclosing function when `expr` is an error.
#define AXCCL_RETURN_IF_ERROR(expr)                                                        \
  do {                                                                                     \
    if (::axccl::Status axccl_status_ = (expr); !axccl_status_.ok()) return axccl_status_; \
  } while (0)
// AXCCL_ASSIGN_OR_RETURN(auto x, Fallible()); declares or assigns `lhs`, or returns the error.
#define AXCCL_ASSIGN_OR_RETURN(lhs, expr)                                                                 \
  auto AXCCL_CONCAT(axccl_result_, __LINE__) = (expr);                                                    \
  if (!AXCCL_CONCAT(axccl_result_, __LINE__).ok()) return AXCCL_CONCAT(axccl_result_, __LINE__).status(); \
  lhs = std::move(AXCCL_CONCAT(axccl_result_, __LINE__)).value()

}  // namespace axccl
