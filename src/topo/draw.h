// Pictures of a machine, for people. Deterministic: equal machines give equal pictures. Pure and thread-safe.
#pragma once

#include <string>
#include <vector>

#include "src/topo/machine.h"
#include "src/topo/place.h"

namespace axccl::topo {

// Draws a tree in UTF-8: one line for each part, with its processors at the right. Equal neighbours are drawn once,
// with their number. If there are seats, a line for each follows.
std::string DrawText(const Machine& machine, const std::vector<Seat>& seats);

// Draws nested boxes, 1200 pixels wide, with a square for each core. The file loads nothing else. A text that is too
// long for its box appears when the pointer rests on it. If there are seats, a core has the colour of the first rank
// that is placed there.
std::string DrawSvg(const Machine& machine, const std::vector<Seat>& seats);

// Returns a text such as "64 GiB": in the largest unit of which there is at least one, with at most three digits.
std::string BytesText(uint64_t bytes);
// "25 Gbit/s".
std::string SpeedText(uint64_t megabits);
// The labels of parts: "eth0 (ethernet, 25 Gbit/s)", "core (2 threads), L2 1 MiB, L1 32 KiB", and of the whole machine.
std::string Describe(const Nic& nic);
std::string Describe(const Gpu& gpu);
std::string Describe(const Core& core);
std::string Describe(const Group& group);
std::string Describe(const Node& node);
std::string Describe(const Machine& machine);

}  // namespace axccl::topo
