// What goes between machines, as a few measured figures, and where they are kept.
//
// A pair of machines is of a class: what kind of link one has, what kind the other, and what is known of the way
// between them; see comm/net/pair_class.h for how it is found. Pairs of one class are taken to be alike, so that one of
// them is measured for all; figures are kept by class, for a day, as cables, switches and their other users change.
// Plain data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/cost/machine.h"

namespace axccl::cost {

// As the fields of Machine of the same meaning.
struct Network {
  double signal_seconds = Machine().network_signal_seconds;
  double message_seconds = Machine().network_message_seconds;
  double link_bytes_per_second = Machine().link_bytes_per_second;
};

Network NetworkOf(const Machine& machine);
void SetNetwork(const Network& network, Machine* machine);
// Of each figure the one that takes longer: plans go at the pace of the slowest link in them.
Network Slower(const Network& a, const Network& b);
// Each figure brought into the range a file may hold, which any network is in.
Network Plausible(const Network& network);

// Of one class; `pair_class` is printable text without line breaks.
struct KeptNetwork {
  std::string pair_class;
  Network network;
};
// The text of the file, and back: kInvalidArgument with line and reason unless it is exactly such a text.
std::string ToText(const KeptNetwork& kept);
Result<KeptNetwork> NetworkFromText(std::string_view text);

// $AXCCL_CACHE_DIR and so on (machine.h), /network-<hash of the class>; empty when the environment names no place.
std::string NetworkFile(std::string_view pair_class);
// All that are kept, the newest first, whatever they are of and however old.
std::vector<std::string> NetworkFiles();
// As NetworkFromText, with the file named; kSystemError where it cannot be read.
Result<KeptNetwork> ReadNetwork(const std::string& file);
// Figures of that class that are not older than a day. kSystemError where there are none, else kInvalidArgument: why
// what there is does not count.
Result<Network> RecallNetwork(std::string_view pair_class);
// Replaces them. Never an error; see figures.h.
void KeepNetwork(std::string_view pair_class, const Network& network);

}  // namespace axccl::cost
