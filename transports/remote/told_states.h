// What a rank has told a peer as states without a turn (transport::Reach::PublishState), with the bytes that it had
// then. What is passed on by another process may come late, or not at all, so it is told again before anything has a
// turn. Of each place, what was told last is enough.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transports/remote/memory.h"
#include "transports/transport.h"

namespace axccl::remote {

class ToldStates {
 public:
  using Stretch = transport::Reach::Stretch;
  using LineAt = transport::Reach::LineAt;

  // `memory`: what the stretches and the line are of.
  void Note(const Memory& memory, std::span<const Stretch> stretches, const LineAt& line);
  bool empty() const { return places_.empty(); }
  void Clear() { places_.clear(); }
  // Calls tell(stretches, line) for all places, in the order of their last times, with content that lasts until Clear.
  template <class Tell>
  void ForEach(const Tell& tell) const {
    for (const Place& place : places_) {
      std::vector<Stretch> stretches;
      for (const Kept& kept : place.kept) {
        stretches.push_back(kept.stretch);
        stretches.back().content = kept.bytes.data();
      }
      tell(std::span<const Stretch>(stretches), LineAt(place.line, place.line_bytes.data()));
    }
  }

 private:
  struct Kept {
    Stretch stretch;
    std::vector<std::byte> bytes;
  };
  // A line, or what begins with the first stretch if there is none, and all stretches told with it.
  struct Place {
    uint64_t line = transport::Reach::kNoLine;
    std::array<std::byte, transport::Reach::kLineBytes> line_bytes{};
    std::vector<Kept> kept;
  };

  std::vector<Place> places_;
};

}  // namespace axccl::remote
