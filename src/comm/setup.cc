#include "src/comm/setup.h"

#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "src/base/log.h"
#include "src/base/param.h"
#include "src/boot/interfaces.h"
#include "src/comm/gpu_blocks.h"
#include "src/device/host/waiting.h"
#include "transports/shm/attach.h"
#include "transports/shm/heap.h"
#include "transports/ucx/connect.h"

namespace axccl::comm {
namespace {

constexpr uint32_t kProtocol = 7;
constexpr int kMaxLanes = 8;
constexpr uint32_t kNetworkLanes = 4;  // at least, where ranks are on several machines
constexpr int kMaxGpuLanes = 64;

// First round: who I am; rank 0 also what everybody does.
struct Introduction {
  uint32_t protocol;
  uint32_t rank;
  int32_t device;
  uint32_t on_gpu;
  uint64_t hash;  // rank 0's counts
  transport::ProcessAddress address;
  char host[64];  // name
  Settings settings;
};
static_assert(sizeof(Introduction) <= 3000);

// Second round: where my block is. Third: which peers' plain memory I can reach.
struct BlockAddress {
  uint64_t offset;  // in my heap
  uint64_t probe;   // address of the block's probe word in my address space
};
struct Reachable {
  uint8_t all;
};

// Between them, where ranks are on several machines: how to send to my process.
struct NetworkAddress {
  uint32_t bytes;
  ucx::LifelineAddress lifeline;
  std::byte data[3000];
};

// As UCX names them.
Result<std::string> NetworkDevices() {
  AXCCL_ASSIGN_OR_RETURN(const std::vector<boot::Interface> interfaces, boot::ListInterfaces());
  AXCCL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                         boot::SelectNames(interfaces, param::Get("NCCL_SOCKET_IFNAME"), param::Get("NCCL_SOCKET_FAMILY")));
  std::string list;
  for (const std::string& name : names) list.append(list.empty() ? "" : ",").append(name);
  return list;
}

// Where to listen for those who ask whether this process is still there.
Result<sockaddr_storage> LocalAddress() {
  AXCCL_ASSIGN_OR_RETURN(const std::vector<boot::Interface> interfaces, boot::ListInterfaces());
  const std::string family = param::Get("NCCL_SOCKET_FAMILY");
  AXCCL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                         boot::SelectNames(interfaces, param::Get("NCCL_SOCKET_IFNAME"), family));
  AXCCL_ASSIGN_OR_RETURN(const std::vector<boot::Address> addresses,
                         boot::SelectAddresses(interfaces, "=" + names[0], family));
  socklen_t bytes = 0;
  return boot::ToSockaddr(addresses[0], &bytes);
}

int Cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

uint64_t RandomHash() {
  uint64_t hash = 0;
  if (getrandom(&hash, sizeof(hash), GRND_NONBLOCK) != sizeof(hash))
    hash = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return hash;
}

Result<Settings> ReadSettings(const SetupOptions& options) {
  Settings settings;
  if (options.inherit != nullptr) {
    settings = *options.inherit;
  } else {
    if (!options.identity.device.gpu) settings.machine = cost::MeasureOnce();
    settings.scratch_bytes = static_cast<uint64_t>(param::GetInt("AXCCL_SCRATCH_BYTES"));
    settings.map_bytes = static_cast<uint64_t>(param::GetInt("AXCCL_MAP_BYTES"));
    settings.allow_calls = param::Get("AXCCL_CMA") != "0";
    settings.group_order = param::Get("AXCCL_ORDER") == "group";
    settings.gpu_channels = static_cast<uint32_t>(param::GetInt("AXCCL_GPU_CHANNELS"));
    settings.timeout_seconds = param::GetSeconds("AXCCL_TIMEOUT");
    const std::string algorithms = param::Get("NCCL_ALGO");
    if (algorithms.size() >= sizeof(settings.algorithms))
      return MakeStatus(Code::kInvalidUsage, "NCCL_ALGO has %zu characters, at most %zu are accepted", algorithms.size(),
                        sizeof(settings.algorithms) - 1);
    std::memcpy(settings.algorithms, algorithms.data(), algorithms.size());
  }
  settings.machine.ranks = options.identity.ranks;
  if (options.identity.device.gpu) {
    AXCCL_ASSIGN_OR_RETURN(const int multiprocessors, exec::GpuMultiprocessors(options.identity.device.ordinal));
    settings.machine = cost::GpuMachine(multiprocessors, options.identity.ranks);
    // Every rank may have all of the device's, unless it shares the device with others.
    settings.lanes = static_cast<uint32_t>(std::clamp(multiprocessors, options.min_lanes, kMaxGpuLanes));
  } else {
    settings.machine.cores = Cores();
    settings.lanes = static_cast<uint32_t>(std::clamp(options.min_lanes, 1, kMaxLanes));
  }
  return settings;
}

std::string DeviceText(const Introduction& peer) {
  return peer.on_gpu != 0 ? "CUDA device " + std::to_string(peer.device) : "the host";
}

// The state of one rank's setup; what it acquired is given back on every way out.
class Builder {
 public:
  Builder(Exchange* exchange, const SetupOptions& options) : exchange_(exchange), options_(options) {}

  Result<std::shared_ptr<Communicator>> Run() {
    AXCCL_RETURN_IF_ERROR(Introduce());
    if (spans_machines_) AXCCL_RETURN_IF_ERROR(ShareNetworkAddresses());
    AXCCL_RETURN_IF_ERROR(ShareBlocks());
    if (options_.identity.device.gpu) AXCCL_RETURN_IF_ERROR(ShareGpuMemory());
    AXCCL_RETURN_IF_ERROR(TestCalls());
    return Finish();
  }

 private:
  size_t ranks() const { return static_cast<size_t>(options_.identity.ranks); }
  size_t self() const { return static_cast<size_t>(options_.identity.rank); }

  Status Introduce() {
    // Before others know of this rank and wait for it.
    if (options_.identity.device.gpu) {
      AXCCL_ASSIGN_OR_RETURN(protocols_, exec::Protocols::Parse(param::Get("NCCL_PROTO")));
    }
    Introduction mine{};
    mine.protocol = kProtocol;
    mine.rank = static_cast<uint32_t>(self());
    mine.device = options_.identity.device.ordinal;
    mine.on_gpu = options_.identity.device.gpu;
    mine.hash = RandomHash();
    AXCCL_ASSIGN_OR_RETURN(mine.address, shm::SelfAddress());
    AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, shm::Heap::Get());
    device::host::Doorbells::Process().Adopt(heap->page());
    if (self() == 0) {
      AXCCL_ASSIGN_OR_RETURN(mine.settings, ReadSettings(options_));
    }
    (void)gethostname(mine.host, sizeof(mine.host));
    peers_.resize(ranks());
    AXCCL_RETURN_IF_ERROR(exchange_->AllGather(&mine, sizeof(mine), peers_.data()));
    for (Introduction& peer : peers_) {
      peer.host[sizeof(peer.host) - 1] = 0;
      if (peer.protocol != kProtocol)
        return MakeStatus(Code::kInvalidUsage, "rank %u speaks protocol %u, this rank %u: use one version of the library",
                          peer.rank, peer.protocol, kProtocol);
      if (peer.on_gpu != peers_[0].on_gpu)
        return MakeStatus(Code::kInvalidUsage, "rank 0 lives on %s and rank %u on %s; all ranks of a communicator need one kind "
                          "of device: set AXCCL_DEVICE alike", DeviceText(peers_[0]).c_str(), peer.rank, DeviceText(peer).c_str());
      spans_machines_ |= peer.address.host_id != peers_[0].address.host_id;
      if (spans_machines_ && peer.on_gpu != 0)
        return MakeStatus(Code::kInvalidUsage,
                          "rank %u cannot share memory with rank 0 (another machine, user or container), and ranks on GPUs need "
                          "to in this version; set AXCCL_DEVICE=host", peer.rank);
    }
    settings_ = peers_[0].settings;
    if (spans_machines_) settings_.lanes = std::max(settings_.lanes, kNetworkLanes);
    settings_.algorithms[sizeof(settings_.algorithms) - 1] = 0;
    // With several processes of one call (threads) the filter is parsed by each: all get the same error.
    AXCCL_ASSIGN_OR_RETURN(chooser_, tune::Chooser::Create(settings_.machine, settings_.algorithms,
                                                           settings_.scratch_bytes / plan::kRotation,
                                                           static_cast<int>(settings_.lanes)));
    return Status();
  }

  Status ShareNetworkAddresses() {
    AXCCL_ASSIGN_OR_RETURN(const std::string devices, NetworkDevices());
    ucx::SelfOptions self_options;
    self_options.devices = devices;
    self_options.process = peers_[self()].address.process_id;
    AXCCL_ASSIGN_OR_RETURN(self_options.local, LocalAddress());
    AXCCL_ASSIGN_OR_RETURN(const ucx::NetworkAddress address, ucx::SelfAddress(self_options));
    const std::vector<std::byte>& own = address.worker;
    NetworkAddress mine{};
    mine.lifeline = address.lifeline;
    if (own.size() > sizeof(mine.data))
      return MakeStatus(Code::kSystemError, "UCX's address of this process takes %zu bytes, at most %zu can be told: choose "
                        "fewer network devices (NCCL_SOCKET_IFNAME, UCX_NET_DEVICES)", own.size(), sizeof(mine.data));
    mine.bytes = static_cast<uint32_t>(own.size());
    std::copy(own.begin(), own.end(), mine.data);
    networks_.resize(ranks());
    return exchange_->AllGather(&mine, sizeof(mine), networks_.data());
  }

  // By the first rank on it.
  int MachineOf(size_t rank) const {
    const auto same = [&](const Introduction& peer) { return peer.address.host_id == peers_[rank].address.host_id; };
    return static_cast<int>(std::find_if(peers_.begin(), peers_.end(), same) - peers_.begin());
  }
  bool IsRemote(size_t rank) const { return peers_[rank].address.host_id != peers_[self()].address.host_id; }

  // What comes for this rank from now on has its block and the peer's mirror to go to.
  Status Connect(size_t rank) {
    if (networks_[rank].bytes > sizeof(networks_[rank].data))
      return MakeStatus(Code::kRemoteError, "rank %zu announced something that is no network address", rank);
    const exec::Member own = OwnMember();
    ucx::RemoteOptions remote;
    remote.comm = peers_[0].hash;
    remote.self = static_cast<uint32_t>(self());
    remote.peer = static_cast<uint32_t>(rank);
    remote.process = peers_[rank].address.process_id;
    remote.address.worker.assign(networks_[rank].data, networks_[rank].data + networks_[rank].bytes);
    remote.address.lifeline = networks_[rank].lifeline;
    remote.pid = peers_[rank].address.pid;
    remote.host = peers_[rank].host;
    remote.block = block_->data();
    remote.block_bytes = layout_.bytes;
    remote.arrived = [own, keep = self_process_] { exec::WakeMember(own); };
    AXCCL_ASSIGN_OR_RETURN(const std::shared_ptr<transport::RemoteRank> connected, ucx::Connect(std::move(remote)));
    exec::Member member;
    member.rank = static_cast<int>(rank);
    member.machine = MachineOf(rank);
    member.block = connected->heap() + ucx::kBlockOffset;
    member.header = reinterpret_cast<exec::BlockHeader*>(member.block);
    member.layout = layout_.channel;
    member.process = member.remote = connected.get();
    members_.push_back(member);
    processes_.push_back(connected);
    return Status();
  }

  exec::Member OwnMember() const {
    exec::Member own;
    own.header = block_->header();
    own.process = self_process_.get();
    return own;
  }

  Status ShareBlocks() {
    layout_ = exec::BlockLayout::Make(static_cast<uint32_t>(ranks()), settings_.lanes, settings_.scratch_bytes);
    AXCCL_ASSIGN_OR_RETURN(block_, Block::Create(static_cast<int>(self()), static_cast<int>(ranks()), layout_));
    const BlockAddress mine{block_->heap_offset(), reinterpret_cast<uint64_t>(&block_->header()->probe)};
    blocks_.resize(ranks());
    AXCCL_RETURN_IF_ERROR(exchange_->AllGather(&mine, sizeof(mine), blocks_.data()));
    AXCCL_ASSIGN_OR_RETURN(self_process_, shm::Attach(peers_[self()].address, options_.deadline, options_.abort));
    for (size_t rank = 0; rank < ranks(); ++rank) {
      if (IsRemote(rank)) {
        AXCCL_RETURN_IF_ERROR(Connect(rank));
        continue;
      }
      AXCCL_ASSIGN_OR_RETURN(auto process, shm::Attach(peers_[rank].address, options_.deadline, options_.abort));
      const uint64_t offset = blocks_[rank].offset;
      if (offset > process->heap_bytes() || layout_.bytes > process->heap_bytes() - offset || offset % 4096 != 0)
        return MakeStatus(Code::kRemoteError, "rank %zu announced a block outside its heap", rank);
      exec::Member member;
      member.rank = static_cast<int>(rank);
      member.machine = MachineOf(rank);
      member.block = process->heap() + offset;
      member.header = reinterpret_cast<exec::BlockHeader*>(member.block);
      member.layout = layout_.channel;
      member.process = process.get();
      member.same_process = process->is_self();
      member.device = peers_[rank].device;
      if (member.header->magic != exec::BlockHeader::kMagic || member.header->rank != rank ||
          member.header->ranks != ranks())
        return MakeStatus(Code::kRemoteError, "rank %zu announced something that is not its block", rank);
      members_.push_back(member);
      processes_.push_back(std::move(process));
    }
    return Status();
  }

  Status ShareGpuMemory() {
    contributed_ = true;  // others may still be looking at the block, whatever fails here
    exec::GpuOptions gpu_options;
    gpu_options.device = options_.identity.device.ordinal;
    gpu_options.rank = options_.identity.rank;
    gpu_options.ranks = options_.identity.ranks;
    gpu_options.lanes = settings_.lanes;
    gpu_options.scratch_bytes = settings_.scratch_bytes;
    gpu_options.channels = settings_.gpu_channels;
    gpu_options.timeout_seconds = settings_.timeout_seconds;
    gpu_options.map_bytes = settings_.map_bytes;
    gpu_options.direct = param::GetInt("NCCL_P2P_DISABLE") == 0;
    gpu_options.protocols = std::move(protocols_);
    AXCCL_ASSIGN_OR_RETURN(gpu_, exec::GpuRank::Create(gpu_options));
    return ShareGpuBlocks(exchange_, options_.identity.rank, gpu_.get(), block_.get(), members_, processes_);
  }

  Status TestCalls() {
    bool all = settings_.allow_calls != 0;
    for (size_t rank = 0; rank < ranks() && all; ++rank) {
      const exec::Member& member = members_[rank];
      if (member.same_process || member.remote != nullptr) continue;
      all = shm::CanCallCopy(member.process->pid(), blocks_[rank].probe, exec::BlockHeader::kProbe);
    }
    const Reachable mine{static_cast<uint8_t>(all)};
    std::vector<Reachable> reachable(ranks());
    // Once this rank has contributed, others may be done and use its block.
    contributed_ = true;
    AXCCL_RETURN_IF_ERROR(exchange_->AllGather(&mine, sizeof(mine), reachable.data()));
    for (const Reachable& r : reachable) all &= r.all != 0;
    for (exec::Member& member : members_) member.call_copy = all;
    return Status();
  }

  std::shared_ptr<Communicator> Finish() {
    device::host::SetCrowd(static_cast<int>(
        std::count_if(members_.begin(), members_.end(), [](const exec::Member& member) { return member.remote == nullptr; })));
    Identity identity = options_.identity;
    identity.hash = peers_[0].hash;
    auto comm = std::make_shared<Communicator>(identity, settings_, std::move(chooser_), std::move(block_),
                                               std::move(members_), std::move(processes_), std::move(gpu_));
    AXCCL_INFO(kInit, "comm %s %016llx rank %zu nranks %zu %s %d: init complete, %d processes, link to rank %zu %s",
               options_.identity.name.c_str(), static_cast<unsigned long long>(identity.hash), self(), ranks(),
               options_.identity.device.gpu ? "cudaDev" : "device", options_.identity.device.ordinal, comm->local_processes(), (self() + 1) % ranks(),
               comm->LinkName(static_cast<int>((self() + 1) % ranks())));
    return comm;
  }

 public:
  // Tells the others, and lets go of what they may already use.
  void GiveUp(const Status& status) {
    exchange_->Fail(status);
    if (gpu_ != nullptr) {
      gpu_->Disconnect();
      block_->Keep(std::shared_ptr<void>(std::move(gpu_)));
    }
    for (const exec::Member& member : members_) {
      if (member.remote != nullptr) {
        member.remote->Detach();
        processes_[static_cast<size_t>(member.rank)] = nullptr;
      } else if (member.rank != options_.identity.rank)
        layout_.ReleasedBy(member.block, options_.identity.rank)->store(1, std::memory_order_release);
    }
    if (contributed_ && block_ != nullptr) {
      processes_[self()] = nullptr;
      Block::Release(std::move(block_), std::move(processes_));
    }
  }

 private:
  Exchange* const exchange_;
  const SetupOptions& options_;
  std::vector<BlockAddress> blocks_;
  std::vector<Introduction> peers_;
  Settings settings_;
  std::unique_ptr<tune::Chooser> chooser_;
  exec::BlockLayout layout_;
  std::unique_ptr<Block> block_;
  std::vector<exec::Member> members_;
  std::vector<std::shared_ptr<transport::PeerProcess>> processes_;
  std::shared_ptr<transport::PeerProcess> self_process_;
  bool spans_machines_ = false;
  std::vector<NetworkAddress> networks_;
  exec::Protocols protocols_;  // that this rank allows
  std::unique_ptr<exec::GpuRank> gpu_;
  bool contributed_ = false;
};

}  // namespace

Result<std::shared_ptr<Communicator>> Setup(Exchange* exchange, const SetupOptions& options) {
  Builder builder(exchange, options);
  auto comm = builder.Run();
  if (!comm.ok()) builder.GiveUp(comm.status());
  return comm;
}

}  // namespace axccl::comm
