#include "transports/remote/told_states.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transports/remote/outgoing.h"

namespace axccl::remote {

void ToldStates::Note(const Memory& memory, std::span<const Stretch> stretches, const LineAt& line) {
  const bool of_line = line.offset != transport::Reach::kNoLine;
  const auto known = std::find_if(places_.begin(), places_.end(), [&](const Place& place) {
    return place.line == line.offset && (of_line || place.kept.front().stretch.offset == stretches.front().offset);
  });
  Place place;
  if (known != places_.end()) {
    place = std::move(*known);
    places_.erase(known);
  }
  place.line = line.offset;
  if (of_line) std::memcpy(place.line_bytes.data(), BytesOf(memory, line), place.line_bytes.size());
  for (const Stretch& stretch : stretches) {
    const std::byte* const from = BytesOf(memory, stretch);
    std::erase_if(place.kept, [&](const Kept& kept) { return kept.stretch.offset == stretch.offset; });
    place.kept.push_back({stretch, {from, from + stretch.bytes}});
  }
  places_.push_back(std::move(place));
}

}  // namespace axccl::remote
