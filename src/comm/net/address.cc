#include "src/comm/net/address.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace axccl::comm {
namespace {

template <size_t N>
void Store(const std::string& text, char (&field)[N]) {
  text.copy(field, N - 1);
}

}  // namespace

Result<WireNetwork> Pack(const remote::NetworkAddress& address, const NetworkText& text) {
  WireNetwork network{};
  network.rails = static_cast<uint32_t>(address.rails.size());
  network.key = address.key;
  network.sealing = static_cast<uint8_t>(address.sealing);
  network.cipher = static_cast<uint8_t>(address.cipher);
  network.text = text;
  size_t used = 0, needed = 0;
  for (const remote::RailAddress& rail : address.rails) needed += rail.worker.size();
  if (needed > sizeof(network.data))
    return MakeStatus(Code::kSystemError,
                      "UCX's address of this process takes %zu bytes, at most %zu can be sent: choose "
                      "fewer network devices (NCCL_IB_HCA, NCCL_SOCKET_IFNAME, UCX_NET_DEVICES)",
                      needed, sizeof(network.data));
  for (size_t i = 0; i < address.rails.size(); ++i) {
    const remote::RailAddress& rail = address.rails[i];
    WireNetwork::Rail& wire = network.rail[i];
    wire.megabits = rail.megabits;
    wire.lifeline = boot::FromSockaddr(reinterpret_cast<const sockaddr*>(&rail.lifeline));
    wire.bytes = static_cast<uint32_t>(rail.worker.size());
    Store(rail.network, wire.network);
    std::copy(rail.worker.begin(), rail.worker.end(), network.data + used);
    used += rail.worker.size();
  }
  return network;
}

Result<remote::NetworkAddress> Unpack(const WireNetwork& network, size_t rank) {
  remote::NetworkAddress address;
  address.key = network.key;
  address.sealing = static_cast<remote::Sealing>(network.sealing);
  address.cipher = static_cast<remote::Cipher>(network.cipher);
  size_t used = 0;
  bool good = network.rails >= 1 && network.rails <= remote::kMostRails &&
              network.sealing <= static_cast<uint8_t>(remote::Sealing::kAll) &&
              network.cipher <= static_cast<uint8_t>(remote::Cipher::kAesGcm);
  for (size_t i = 0; good && i < network.rails; ++i) {
    const WireNetwork::Rail& wire = network.rail[i];
    good = wire.bytes <= sizeof(network.data) - used && (wire.lifeline.family == 4 || wire.lifeline.family == 6) &&
           std::memchr(wire.network, 0, sizeof(wire.network));
    if (!good) break;
    remote::RailAddress rail;
    rail.network = wire.network;
    rail.megabits = wire.megabits;
    rail.worker.assign(network.data + used, network.data + used + wire.bytes);
    socklen_t bytes = 0;
    rail.lifeline = boot::ToSockaddr(wire.lifeline, &bytes);
    used += wire.bytes;
    for (const remote::RailAddress& before : address.rails) good &= before.network != rail.network;
    address.rails.push_back(std::move(rail));
  }
  if (good) return address;
  return MakeStatus(Code::kRemoteError, "rank %zu announced something that is no network address", rank);
}

}  // namespace axccl::comm
