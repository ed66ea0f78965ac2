// Copies in bulk for fibers: the unit of a block that makes them, in small pieces and random order, at random times.
//
// Used by one thread of the block. It reaches memory itself, not through what the block's stores wait in, so a copy
// that begins without what orders it finds old bytes; one that begins without a fence since the last barrier is spoilt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace axccl::fibers {

struct alignas(8) BulkGate {
  uint16_t opened;   // times
  uint16_t arrived;  // who expects something has said so
  int32_t bytes;     // that are missing

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
  // Whether the groups but the last `but` ones have read, and whether all have written.
  bool HaveRead(uint32_t but) const;
  bool HaveWritten() const;
  bool idle() const { return copies_.empty(); }

  // What is to be copied next; End() when it has been.
  Piece Next();
  void End();

 private:
  // A store reads all of its source first, and writes what it has read.
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
  size_t now_ = 0;  // the copy of the piece
  Piece piece_{};
};

// Written to memory by all units of this process.
uint64_t BulkBytes();

}  // namespace axccl::fibers
