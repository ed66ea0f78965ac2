#include "src/comm/net/places.h"

#include <algorithm>
#include <cstring>

#include "src/base/hash.h"

namespace axccl::comm {

Places::Places(std::vector<Place> places, size_t self) : places_(std::move(places)), self_(self) {
  std::map<transport::HostId, int> machines;
  std::map<std::array<uint8_t, 16>, int> processes;
  std::map<std::pair<int, std::array<uint8_t, 16>>, int> cores;
  for (size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    const int rank = static_cast<int>(i);
    machine_of_.push_back(machines.emplace(place.host, rank).first->second);
    process_of_.push_back(processes.emplace(place.process, rank).first->second);
    const auto first = static_cast<size_t>(process_of_.back());
    number_of_.push_back(IsFirstOfProcess(i) ? processes_on_[machine_of_.back()]++ : number_of_[first]);
    cores_of_.push_back(cores.try_emplace({machine_of_.back(), place.device}, rank).first->second);
  }
}

int Places::MostRanksOfCores() const {
  int most = 0;
  for (const int first : cores_of_)
    most = std::max(most, static_cast<int>(std::count(cores_of_.begin(), cores_of_.end(), first)));
  return most;
}

uint64_t Places::MachineNumber(size_t rank) const {
  const transport::HostId& host = places_[rank].host;
  uint64_t words[sizeof host / sizeof(uint64_t)], hash = kHashSeed;
  static_assert(sizeof words == sizeof host);
  std::memcpy(words, &host, sizeof host);
  for (const uint64_t word : words) hash = Mix(hash, word);
  return hash;
}

bool Places::Watches(size_t rank) const {
  const size_t fewer = std::min(processes_on_.at(machine_of_[self_]), processes_on_.at(machine_of_[rank]));
  return number_of_[self_] % fewer == number_of_[rank] % fewer;
}

std::shared_ptr<const std::vector<remote::Relay>> Places::RelaysTo(size_t rank) {
  std::shared_ptr<const std::vector<remote::Relay>>& known = relays_[machine_of_[rank]];
  if (known != nullptr) return known;
  std::vector<remote::Relay> relays;
  for (size_t other = 0; other < places_.size(); ++other) {
    if (machine_of_[other] == machine_of_[rank] && IsFirstOfProcess(other))
      relays.push_back({places_[other].process, static_cast<int>(other)});
  }
  const auto watched = [this](const remote::Relay& relay) { return Watches(static_cast<size_t>(relay.rank)); };
  std::stable_partition(relays.begin(), relays.end(), watched);
  return known = std::make_shared<const std::vector<remote::Relay>>(std::move(relays));
}

FarProcesses Places::FarOnes(uint64_t comm) const {
  FarProcesses far;
  far.comm = comm;
  for (size_t rank = 0; rank < places_.size(); ++rank) {
    const auto first = static_cast<size_t>(process_of_[rank]);  // is not after `rank`
    if (IsRemote(rank) && first == rank) {
      far.of_rank.push_back(static_cast<int>(far.ids.size()));
      far.ids.push_back(places_[rank].process);
      far.machines.push_back(machine_of_[rank]);
    } else {
      far.of_rank.push_back(IsRemote(rank) ? far.of_rank[first] : -1);
    }
  }
  return far;
}

}  // namespace axccl::comm
