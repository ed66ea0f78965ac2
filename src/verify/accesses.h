// The accesses of strands to places, as far as later accesses must be compared with them. Owned by one Run
// (concurrency.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace axccl::verify {

inline constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// An operation of a run. Positions in a strand count from the start of turn 0.
struct Event {
  uint32_t strand = kNone;
  uint32_t position = 0;
};

// The last accesses of a place.
struct History {
  Event write;
  Event replacement;       // the last write that has an effect also in place
  bool multicast = false;  // to all ranks at once
  uint32_t published = 0;  // position of the signal that publishes an inline slot, kNone = never
  uint32_t reads = kNone;  // list since the replacement
};

// Lists of reads, which share their memory. A list is the index of its first node, kNone when it is empty.
class Reads {
 public:
  struct Node {
    Event event;
    bool of_input;
    bool multicast;
    uint32_t next;
  };

  Node& operator[](uint32_t i) { return nodes_[i]; }
  void Add(uint32_t* list, const Event& event, bool of_input, bool multicast) {
    if (free_ == kNone) {
      free_ = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({{}, false, false, kNone});
    }
    const uint32_t node = free_;
    free_ = nodes_[node].next;
    nodes_[node] = {event, of_input, multicast, *list};
    *list = node;
  }
  // Empties a list whose last node is `last`.
  void Clear(uint32_t* list, uint32_t last) {
    if (*list == kNone) return;
    nodes_[last].next = free_;
    free_ = *list;
    *list = kNone;
  }
  size_t bytes() const { return nodes_.size() * sizeof(Node); }

 private:
  std::vector<Node> nodes_;
  uint32_t free_ = kNone;  // list of nodes
};

}  // namespace axccl::verify
