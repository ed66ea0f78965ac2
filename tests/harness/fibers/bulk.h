// Copies in bulk for fibers: what makes those of a thread, in small pieces, in random order and at random times.
//
// The unit accesses memory directly, not the buffer in which the block's stores wait.
// So a copy that starts without the required ordering reads old bytes, and one that starts without a fence since the
// last barrier is corrupted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace axccl::fibers {

struct alignas(8) BulkGate {
  uint16_t opened;   // number of times
  uint16_t arrived;  // a thread has announced the expected bytes
  int32_t bytes;     // missing bytes

  void Expect(uint32_t expected);
  void Come(uint32_t came);
  void OpenIfComplete();
  bool HasOpened(uint32_t parity) const { return opened % 2 != parity; }
};

class BulkUnit {
 public:
  struct Piece {
    uint8_t* to;
    const uint8_t* from;
    uint32_t bytes;
  };

  void Load(uint8_t* to, const uint8_t* from, uint32_t bytes, BulkGate* gate, bool spoilt);
  void Store(uint8_t* to, const uint8_t* from, uint32_t bytes, bool spoilt);
  void Commit() { ++group_; }
  // Whether all groups but the last `but` have read, and whether all have written.
  bool HaveRead(uint32_t but) const;
  bool HaveWritten() const;
  bool idle() const { return copies_.empty(); }

  // The next piece to copy; call End() after copying it.
  Piece Next();
  void End();

 private:
  // A store reads all of its source first, and then writes what it has read.
  struct Copy {
    uint8_t* to;
    const uint8_t* from;
    uint32_t bytes, read, written;
    BulkGate* gate;  // null: a store
    uint32_t group;
    bool spoilt;
    std::vector<uint8_t> data;
  };

  std::vector<Copy> copies_;
  uint32_t group_ = 0;
  size_t now_ = 0;  // the copy to which the piece belongs
  Piece piece_{};
};

// Bytes that all units of this process have written to memory.
uint64_t BulkBytes();

}  // namespace axccl::fibers
