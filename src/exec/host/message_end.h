// How a message between ranks that share no memory ends. Where two ranks answer each other, it costs one packet each
// way (plan::Plan::sends_ahead).
//
// A sender that has received something from the receiver since its message before does not wait for the receiver in
// its last turn: it puts these waits off until the channel's next operation, which begins with them. Nothing else
// happens on the channel meanwhile, so lines and slots are used again in the same order as ever. A mismatch of the two
// calls shows then, or when the rank waits for the next answer. Other senders wait, so that a message that nobody
// receives is found at once. The sender's signals say which it is (kAhead).
//
// Nobody waits for what the receiver of such a message signals in its last turn before the next message. It is kept,
// to go with what the rank publishes next for the sender's process, and goes alone when the channel's next operation
// begins. That is done as long as it pays, and tried again now and then.
//
// A channel of a pair has one of these, on either side. Only its running operation uses it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace axccl::exec {

class MessageEnd {
 public:
  struct Wait {
    uint16_t from_lane = 0, endpoint = 0, value = 0;
  };
  // The waits that an operation has put off, in one turn, for signals of the same operation.
  struct PutOff {
    uint64_t sequence = 0, turn = 0;
    uint32_t signature = 0;
    std::vector<Wait> waits;
  };
  // Changes the signature of a sender that does not wait.
  static constexpr uint32_t kAhead = 0x80000000u;

  // ---- sender ----

  PutOff& put_off() { return put_off_; }
  // Whether the message that begins may put off its last waits. `received`: messages from the receiver so far.
  bool Answered(uint32_t received) { return std::exchange(received_, received) != received; }

  // ---- receiver ----

  // Whether to keep the signals of the message that begins.
  bool Keep() {
    if (!ahead_) return false;
    if (skip_ > 0) return --skip_, false;
    return kept_ = true;
  }
  // Whether those of the last message may still have to go.
  bool kept() const { return kept_; }
  // Whether the sender waits for them.
  void NoteSender(bool ahead) { ahead_ = ahead; }
  // They have gone: `alone`, or with something else.
  void Sent(bool alone) {
    kept_ = false;
    if (!ahead_) return;
    next_skip_ = alone ? std::min(2 * next_skip_ + 1, kMostSkipped) : 0;
    skip_ = next_skip_;
  }

 private:
  static constexpr uint32_t kMostSkipped = 63;

  PutOff put_off_;
  uint32_t received_ = 0;
  bool ahead_ = false;
  bool kept_ = false;
  uint32_t skip_ = 0, next_skip_ = 0;
};

}  // namespace axccl::exec
