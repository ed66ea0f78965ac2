// Host streams and events that end with their scope, and gates at which host functions wait, for tests of order.
#pragma once

#include <gtest/gtest.h>

#include <atomic>

#include "tests/harness/client.h"

namespace axccl::tests {

// A gate that a host function can wait at.
class Gate {
 public:
  void Open() {
    open_.store(true);
    open_.notify_all();
  }
  void Wait() { open_.wait(false); }
  bool is_open() const { return open_.load(); }

 private:
  std::atomic<bool> open_{false};
};

inline void WaitAtGate(void* gate) { static_cast<Gate*>(gate)->Wait(); }
inline void OpenGate(void* gate) { static_cast<Gate*>(gate)->Open(); }

// A stream that is destroyed with the scope.
class Stream {
 public:
  explicit Stream(unsigned flags = axcclStreamNonBlocking) { EXPECT_OK(axcclStreamCreate(&stream_, flags)); }
  ~Stream() { EXPECT_OK(axcclStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator axcclStream_t() const { return stream_; }

 private:
  axcclStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { EXPECT_OK(axcclEventCreate(&event_)); }
  ~Event() { EXPECT_OK(axcclEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator axcclEvent_t() const { return event_; }

 private:
  axcclEvent_t event_ = nullptr;
};

}  // namespace axccl::tests
