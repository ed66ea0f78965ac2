// What one sender has sent, in the order in which it was sent, whatever the order in which it arrives.
//
// Messages and flushes have consecutive numbers, and each has its turn once all before it have had theirs. Those that
// arrive early, or before their data, are held until then. The caller must hold the lock of the peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "transports/remote/memory.h"
#include "transports/remote/wire.h"

namespace axccl::remote {

// A message or flush that has arrived before its data, or before its turn.
struct Incoming {
  virtual ~Incoming() = default;
  // Whether the transport still writes its data.
  virtual bool fetching() const { return false; }

  std::shared_ptr<Memory> memory;  // null: the message is for a channel that is gone, or is a flush
  Message message{};
  WireControl flush{};          // kind 0: none
  const void* way = nullptr;    // on which the flush came
  std::vector<std::byte> kept;  // data to be stored in its turn
  bool here = false;            // has all its data
};

class Arrivals {
 public:
  // Whether what arrives may have the number `turn`: neither one that has been, nor one too far ahead. Returns the
  // number in full.
  bool Expects(uint32_t turn, uint64_t* number) const {
    return MayCome(turn, next_, number) && (held_.empty() || !held_.contains(*number));
  }
  // Whether one with that number has come, however long ago.
  bool HasCome(uint32_t turn) const {
    uint64_t number = 0;
    if (MayCome(turn, next_, &number)) return held_.contains(number);
    return static_cast<uint32_t>(next_) - turn <= next_;
  }
  // Whether all before that number have had their turn.
  bool IsNext(uint64_t number) const { return number == next_; }
  // The next one has its turn now, without having been held.
  void Pass() { ++next_; }
  // Holds what has arrived with a number that is expected.
  void Hold(uint64_t number, std::shared_ptr<Incoming> incoming);
  // Takes out the next one, whose turn this is; null if it has not arrived, or not all of its data.
  std::shared_ptr<Incoming> TakeNext() { return held_.empty() ? nullptr : TakeFirst(); }
  // Drops what is held, except for messages whose data are still being fetched.
  void Drop();

 private:
  std::shared_ptr<Incoming> TakeFirst();

  uint64_t next_ = 0;
  std::map<uint64_t, std::shared_ptr<Incoming>> held_;  // by number, `next_` and above
};

}  // namespace axccl::remote
