// How the ranks of random programs meet: collectives on groups of all sorts, and messages between parts and within
// them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "src/program/program.h"
#include "tests/harness/random.h"
#include "tests/program/random_body.h"

namespace axccl::program {

// A message that is sent and not yet received.
struct Message {
  int64_t channel;
  size_t target;  // part
  Groups pairs;
  TensorType type;
};

// What is written together: the ends of some parts, or one region of them.
struct Scope {
  std::vector<size_t> parts;
  std::vector<Ints> classes;  // ranks of different ones do not communicate
  Ints channels;              // of messages
  int depth = 0;
  std::deque<Message> pending;
};

class Meetings {
 public:
  // These must outlive it; parts may still be added.
  Meetings(const int* ranks, std::deque<PartMaker>* makers, harness::Random* random)
      : ranks_(*ranks), makers_(*makers), random_(random) {}

  Ints RanksOf(const std::vector<size_t>& parts) const;
  // The classes of a scope, of these parts only, each in random order.
  std::vector<Ints> ClassesOf(const Scope& scope, const std::vector<size_t>& parts);
  // Groups of classes: of `size` ranks, 0: of any.
  Groups Divide(const std::vector<Ints>& classes, size_t size);

  // A random collective of all ranks of these parts.
  void Collective(const Scope& scope, const std::vector<size_t>& parts);
  void AllReduce(const std::vector<size_t>& parts, const Groups& groups);

  // To all ranks of some part of the scope, from as many of any.
  Message NewMessage(const Scope& scope, int64_t channel);
  void Send(const Scope& scope, const Message& message);
  void Receive(const Message& message);
  // With one of the channels of the scope; what is sent first on a channel is received first.
  void SendSome(Scope* scope);
  void ReceiveSome(Scope* scope);
  void Drain(Scope* scope);

 private:
  int64_t Small(uint64_t bound) { return static_cast<int64_t>(random_->Below(bound)); }
  size_t CommonSize(const std::vector<Ints>& classes);
  Groups WrittenBy(size_t part, Groups groups);
  TensorType AnyType(const std::vector<size_t>& parts);
  TensorType DividedType(const std::vector<size_t>& parts, std::optional<size_t>* dim, size_t divisor);
  void Divided(OpKind kind, const Scope& scope, const std::vector<size_t>& parts);
  void Rooted(OpKind kind, const Scope& scope, const std::vector<size_t>& parts);
  void Permute(const Scope& scope, const std::vector<size_t>& parts);
  // `last`: behind the operands, of these elements; null: nothing.
  void Meet(OpKind kind, const std::vector<size_t>& parts, const std::vector<TensorType>& from,
            const std::vector<TensorType>& to, const std::vector<Attribute>& attributes, const Groups& groups,
            const std::vector<int32_t>* last = nullptr);

  const int& ranks_;
  std::deque<PartMaker>& makers_;
  harness::Random* const random_;
};

}  // namespace axccl::program
