// The network between machines, as a few measured figures, and the files that keep them.
//
// A pair of machines has a class: the kinds of their links and what is known of the path between them; see
// comm/net/pair_class.h for how it is found. Pairs of one class are assumed to be alike, so one of them is measured for
// all. Figures are kept by class, for one day, because cables, switches and other users of them change. Plain data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/cost/machine.h"

namespace axccl::cost {

// The fields mean the same as those of Machine.
struct Network {
  double signal_seconds = Machine().network_signal_seconds;
  double message_seconds = Machine().network_message_seconds;
  double link_bytes_per_second = Machine().link_bytes_per_second;
};

Network NetworkOf(const Machine& machine);
void SetNetwork(const Network& network, Machine* machine);
// Of each figure, the one that takes longer: plans run at the pace of the slowest link that they use.
Network Slower(const Network& a, const Network& b);
// Clamps each figure to the range that a file may hold; the figures of any real network are in that range.
Network Plausible(const Network& network);

// The figures of one class; `pair_class` is printable text without line breaks.
struct KeptNetwork {
  std::string pair_class;
  Network network;
};
// Write and parse the text of the file. Parsing returns kInvalidArgument with line and reason unless ToText could have
// written the text.
std::string ToText(const KeptNetwork& kept);
Result<KeptNetwork> NetworkFromText(std::string_view text);

// The file of a class: $AXCCL_CACHE_DIR and so on (machine.h), /network-<hash of the class>; empty when the environment
// names no folder.
std::string NetworkFile(std::string_view pair_class);
// All files of any class, the newest first, however old.
std::vector<std::string> NetworkFiles();
// As NetworkFromText, with the name of the file in the message; kSystemError when it cannot be read.
Result<KeptNetwork> ReadNetwork(const std::string& file);
// Returns figures of that class that are at most a day old. kSystemError when there are none; kInvalidArgument, with
// the reason, when the existing ones are not usable.
Result<Network> RecallNetwork(std::string_view pair_class);
// Replaces the figures. Never an error; see figures.h.
void KeepNetwork(std::string_view pair_class, const Network& network);

}  // namespace axccl::cost
