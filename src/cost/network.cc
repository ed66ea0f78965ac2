#include "src/cost/network.h"

#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "src/base/files.h"
#include "src/cost/figures.h"

namespace axccl::cost {

namespace {

constexpr std::string_view kNetworkKind = "network";
constexpr std::string_view kNetworkTitle = "axccl-network 1";
constexpr std::string_view kNetworkClass = "class";
constexpr size_t kMostClass = 600;  // characters
constexpr time_t kDay = 24 * 3600;

struct NetworkField {
  std::string_view name;
  double Network::*value;
  double Machine::*of_machine;
  double least;
  double most;
};

// From a bus to a modem.
constexpr NetworkField kNetworkFields[] = {
    {"signal_seconds", &Network::signal_seconds, &Machine::network_signal_seconds, 1e-8, 10},
    {"message_seconds", &Network::message_seconds, &Machine::network_message_seconds, 1e-9, 1},
    {"link_bytes_per_second", &Network::link_bytes_per_second, &Machine::link_bytes_per_second, 1e3, 1e13},
};

}  // namespace

Network NetworkOf(const Machine& machine) {
  Network network;
  for (const NetworkField& f : kNetworkFields) network.*f.value = machine.*f.of_machine;
  return network;
}

void SetNetwork(const Network& network, Machine* machine) {
  for (const NetworkField& f : kNetworkFields) machine->*f.of_machine = network.*f.value;
}

Network Slower(const Network& a, const Network& b) {
  return {std::max(a.signal_seconds, b.signal_seconds), std::max(a.message_seconds, b.message_seconds),
          std::min(a.link_bytes_per_second, b.link_bytes_per_second)};
}

Network Plausible(const Network& network) {
  Network plausible = network;
  for (const NetworkField& f : kNetworkFields) plausible.*f.value = std::clamp(network.*f.value, f.least, f.most);
  return plausible;
}

std::string ToText(const KeptNetwork& kept) {
  FigureWriter writer(kNetworkTitle);
  writer.AddText(kNetworkClass, kept.pair_class);
  for (const NetworkField& f : kNetworkFields) writer.Add(f.name, kept.network.*f.value);
  return writer.text();
}

Result<KeptNetwork> NetworkFromText(std::string_view text) {
  KeptNetwork kept;
  FigureReader reader("network file", text);
  AXCCL_RETURN_IF_ERROR(reader.Expect(kNetworkTitle));
  AXCCL_ASSIGN_OR_RETURN(kept.pair_class, reader.Text(kNetworkClass, kMostClass));
  for (const NetworkField& f : kNetworkFields) {
    AXCCL_ASSIGN_OR_RETURN(kept.network.*f.value, reader.Number(f.name, f.least, f.most));
  }
  AXCCL_RETURN_IF_ERROR(reader.End());
  return kept;
}

std::string NetworkFile(std::string_view pair_class) {
  return CachedFile(kNetworkKind, std::string(kNetworkTitle) + ";" + std::string(pair_class));
}

std::vector<std::string> NetworkFiles() { return CachedFiles(kNetworkKind); }

Result<KeptNetwork> ReadNetwork(const std::string& file) {
  AXCCL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file, kMostFigureBytes));
  Result<KeptNetwork> kept = NetworkFromText(text);
  if (!kept.ok()) return InFile(file, kept.status());
  return kept;
}

Result<Network> RecallNetwork(std::string_view pair_class) {
  const std::string file = NetworkFile(pair_class);
  AXCCL_ASSIGN_OR_RETURN(const KeptNetwork kept, ReadNetwork(file));
  if (kept.pair_class != pair_class)
    return MakeStatus(Code::kInvalidArgument, "%s is of class '%s'", file.c_str(), kept.pair_class.c_str());
  struct stat info {};
  if (stat(file.c_str(), &info) != 0) return SystemError(errno, "stat(%s)", file.c_str());
  // A timestamp in the future was written before the clock was set back.
  const time_t age = time(nullptr) - info.st_mtime;
  if (age < -kDay || age > kDay) return MakeStatus(Code::kInvalidArgument, "%s is not of today", file.c_str());
  return kept.network;
}

void KeepNetwork(std::string_view pair_class, const Network& network) {
  const std::string file = NetworkFile(pair_class);
  if (!file.empty()) KeepFigures(file, ToText(KeptNetwork{std::string(pair_class), network}), "the network");
}

}  // namespace axccl::cost
