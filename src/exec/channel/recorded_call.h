// A call in words that other ranks read: those with which an op record begins, or a channel's slot (layout.h).
//
// Thread-safe as far as the words are: a reader must find out by itself whether they were rewritten meanwhile. A peer
// wrote them, so any bits are legal.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "src/exec/call/call.h"
#include "src/exec/layout.h"

namespace axccl::exec {

struct RecordedCall {
  // Copies the words.
  explicit RecordedCall(const std::atomic<uint64_t>* words);
  // The form of a call on views, of which `hash` is that of all operands.
  static void WriteForm(const ViewList& views, uint32_t hash, std::atomic<uint64_t>* words);
  // A call that runs no plan so far.
  static void Write(const Call& call, std::atomic<uint64_t>* words);

  std::string Text() const;
  // The difference, if the texts show none.
  const char* Hidden() const;
  bool operator==(const RecordedCall& other) const {
    return ((packed ^ other.packed) & ~Call::kSecondName) == 0 && count == other.count && readable && other.readable &&
           operands == other.operands && hash == other.hash && slices == other.slices;
  }
  bool IsMessage() const { return (packed & 0xff) == static_cast<uint64_t>(plan::Kind::kSendRecv); }
  // Whether both name the plan that they run, and the plans differ.
  bool RunsOtherPlan(const RecordedCall& other) const { return plan != 0 && other.plan != 0 && plan != other.plan; }

  uint64_t packed, count, plan;
  bool on_views, readable = true;
  uint64_t operands = 0, hash = 0, slices = 0;
  double scale = 0;
  BlockForm form;  // of the first operand
  DataType type = DataType::kInt8;
};

}  // namespace axccl::exec
