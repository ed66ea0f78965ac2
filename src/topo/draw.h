// Pictures of a machine, for people. Deterministic: one machine, one picture. Pure and thread-safe.
#pragma once

#include <string>
#include <vector>

#include "src/topo/machine.h"
#include "src/topo/place.h"

namespace axccl::topo {

// A tree in UTF-8, a line a part, processors at the right; equal neighbours are drawn once, with their number. Then,
// where there are seats, a line each.
std::string DrawText(const Machine& machine, const std::vector<Seat>& seats);

// Nested boxes, 1200 pixels wide, a square a core, with nothing that would have to be loaded; what is too long for its
// box is shown when the pointer rests on it. Where there are seats, cores have the colour of the first rank that is
// placed there.
std::string DrawSvg(const Machine& machine, const std::vector<Seat>& seats);

// "64 GiB": the largest unit of which there is at least one, at most three digits of it.
std::string BytesText(uint64_t bytes);
// "25 Gbit/s".
std::string SpeedText(uint64_t megabits);
// What is written at them: "eth0 (ethernet, 25 Gbit/s)", "core (2 threads), L2 1 MiB, L1 32 KiB", and of the whole
// machine.
std::string Describe(const Nic& nic);
std::string Describe(const Core& core);
std::string Describe(const Group& group);
std::string Describe(const Node& node);
std::string Describe(const Machine& machine);

}  // namespace axccl::topo
