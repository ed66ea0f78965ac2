// Which ranks of a communicator share a machine, a process, or the cores of a device.
//
// Each of these is named by its first rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "src/comm/net/notices.h"
#include "transports/remote/address.h"
#include "transports/transport.h"

namespace axccl::comm {

class Places {
 public:
  // Where a rank is.
  struct Place {
    transport::HostId host;
    std::array<uint8_t, 16> process{};
    std::array<uint8_t, 16> device{};  // that the cores are of
  };

  Places() = default;
  // As rank `self` of the communicator sees the places of all.
  Places(std::vector<Place> places, size_t self);

  const std::vector<int>& machines() const { return machine_of_; }
  int MachineOf(size_t rank) const { return machine_of_[rank]; }
  int ProcessOf(size_t rank) const { return process_of_[rank]; }
  int CoresOf(size_t rank) const { return cores_of_[rank]; }
  bool IsFirstOfProcess(size_t rank) const { return process_of_[rank] == static_cast<int>(rank); }
  bool IsRemote(size_t rank) const { return machine_of_[rank] != machine_of_[self_]; }
  // Of those that have the same cores.
  int MostRanksOfCores() const;
  // A number of the machine that is the same in all communicators.
  uint64_t MachineNumber(size_t rank) const;

  // Whether the processes of this rank and of `rank` watch each other: each process watches one process of every other
  // machine, or its share of them, so that all are watched from there.
  bool Watches(size_t rank) const;
  // The processes of the machine of `rank`, those first that this rank's process watches.
  std::shared_ptr<const std::vector<remote::Relay>> RelaysTo(size_t rank);
  FarProcesses FarOnes(uint64_t comm) const;

 private:
  std::vector<Place> places_;  // by rank
  size_t self_ = 0;
  std::vector<int> machine_of_, process_of_, cores_of_;  // of each rank
  std::vector<size_t> number_of_;                        // of each rank's process, among those of its machine
  std::map<int, size_t> processes_on_;                   // each machine
  std::map<int, std::shared_ptr<const std::vector<remote::Relay>>> relays_;  // on each machine
};

}  // namespace axccl::comm
