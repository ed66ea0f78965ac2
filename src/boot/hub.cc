#include "src/boot/hub.h"

#include <errno.h>
#include <sodium.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "src/base/log.h"
#include "src/base/param.h"
#include "src/boot/interfaces.h"
#include "src/boot/tcp.h"

namespace axccl::boot {

using service::Acceptor;
using service::Fd;
using service::Guest;
using service::Loop;

namespace {

constexpr size_t kRemembered = 256;
constexpr size_t kBaseGuests = 64;  // of an id
constexpr std::chrono::seconds kEnvironmentLinger{1};
constexpr std::chrono::seconds kNodeLinger{3};

std::atomic<Hub*> the_hub{nullptr};

}  // namespace

// A connection that has not proved itself yet: everything it sends fits into one fixed buffer.
class Handshake : public Guest {
 public:
  Handshake(Fd fd, Hub* hub) : Guest(std::move(fd)), hub_(hub), cipher_(Key{}, Role::kHub) {}
  ~Handshake() override { sodium_memzero(secret_.data(), secret_.size()); }

  Verdict OnEvent() override {
    for (;;) {
      const ssize_t n = recv(this->fd(), buffer_ + have_, need_ - have_, MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return Verdict::kWait;
      if (n <= 0) return Verdict::kDrop;
      have_ += static_cast<size_t>(n);
      if (have_ < need_) continue;
      if (greeted_) return Check();
      if (!Greet()) return Verdict::kDrop;
    }
  }

  const Name* Named() const override { return greeted_ ? &rank_.id : nullptr; }
  void Admitted(Fd fd) override { hub_->Enter(Arrival{std::move(fd), rank_, join_, cipher_}); }

 private:
  struct Answer {
    Hello hello;
    Proof proof;
  };
  struct Credentials {
    Proof proof;
    FrameHeader header;
    JoinBody join;
  };
  static_assert(sizeof(Credentials) == 224);

  bool Greet() {
    std::memcpy(static_cast<void*>(&rank_), buffer_, sizeof rank_);
    if (rank_.magic != Hello::kMagic || (rank_.role != Role::kRank && rank_.role != Role::kChild)) return false;
    Answer answer;
    answer.hello.id = rank_.id;
    const Secret* const secret = hub_->FindSecret(rank_);
    if (secret == nullptr) {
      answer.hello.role = Role::kUnknownId;
      (void)!send(fd(), &answer.hello, sizeof answer.hello, MSG_DONTWAIT | MSG_NOSIGNAL);
      return false;
    }
    secret_ = *secret;
    answer.hello.role = Role::kHub;
    FillNonce(&answer.hello);
    answer.proof = Prove(secret_, Role::kHub, rank_, answer.hello);
    answer_ = answer.hello;
    if (send(fd(), &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof answer) return false;
    greeted_ = true;
    have_ = 0;
    // A rank of another version proves itself in the same way, but what it would send next may differ.
    need_ = rank_.version == kProtocolVersion ? sizeof(Credentials) : sizeof(Proof);
    return true;
  }

  Verdict Check() {
    Credentials credentials;
    std::memcpy(static_cast<void*>(&credentials), buffer_, need_);
    if (!SameProof(credentials.proof, Prove(secret_, Role::kRank, rank_, answer_))) {
      AXCCL_INFO(kBootstrap, "rendezvous: a connection that claims rank %d does not know the secret", rank_.rank);
      return Verdict::kDrop;
    }
    cipher_ = FrameCipher(ConnectionKey(secret_, rank_, answer_), Role::kHub);
    if (rank_.version != kProtocolVersion) return Verdict::kAdmit;
    const auto payload = std::as_bytes(std::span(&credentials.join, 1));
    if (credentials.header.type != FrameType::kJoin || !cipher_.Open(credentials.header, payload))
      return Verdict::kDrop;
    join_ = credentials.join;
    return Verdict::kAdmit;
  }

  Hub* const hub_;
  bool greeted_ = false;
  size_t need_ = sizeof(Hello);
  size_t have_ = 0;
  alignas(8) std::byte buffer_[sizeof(Credentials)];
  Hello rank_;
  Hello answer_;
  JoinBody join_;
  Secret secret_{};
  FrameCipher cipher_;
};

Result<Hub*> Hub::Get() {
  static auto* mutex = new std::mutex;
  AXCCL_ASSIGN_OR_RETURN(Loop* const loop, Loop::Get());
  std::lock_guard lock(*mutex);
  Hub* hub = the_hub.load(std::memory_order_relaxed);
  if (hub == nullptr || hub->loop_ != loop) {
    if (sodium_init() < 0) return MakeStatus(Code::kSystemError, "rendezvous: libsodium finds no source of randomness");
    hub = new Hub(loop, hub);
    the_hub.store(hub, std::memory_order_release);
  }
  return hub;
}

Result<std::unique_ptr<Acceptor>> Hub::Accept(Address* address, bool reuse, bool* busy) {
  AXCCL_ASSIGN_OR_RETURN(Fd listener, Listen(address, reuse, busy));
  auto acceptor = std::make_unique<Acceptor>(
      loop_, std::move(listener),
      [this](Fd fd) -> std::unique_ptr<Guest> {
        TuneSocket(fd.get());
        return std::make_unique<Handshake>(std::move(fd), this);
      },
      [this] { return Acceptor::Places{.of_a_name = kBaseGuests + 2 * expected_ranks_}; });
  AXCCL_RETURN_IF_ERROR(acceptor->Start());
  return acceptor;
}

Status Hub::OpenStanding(std::vector<Address> addresses) {
  if (!acceptors_.empty()) return Status();
  std::vector<std::unique_ptr<Acceptor>> acceptors;
  for (Address& address : addresses) {
    AXCCL_ASSIGN_OR_RETURN(std::unique_ptr<Acceptor> acceptor, Accept(&address, false, nullptr));
    acceptors.push_back(std::move(acceptor));
    AXCCL_INFO(kBootstrap, "rendezvous: listening on %s", ToText(address).c_str());
  }
  acceptors_ = std::move(acceptors);
  standing_ = std::move(addresses);
  return Status();
}

Result<UniqueId> Hub::Create() {
  const std::string ifname = param::Get("NCCL_SOCKET_IFNAME");
  AXCCL_ASSIGN_OR_RETURN(const std::vector<Interface> interfaces, ListInterfaces());
  AXCCL_ASSIGN_OR_RETURN(std::vector<Address> addresses,
                         SelectAddresses(interfaces, ifname, param::Get("NCCL_SOCKET_FAMILY")));
  IdFields fields;
  randombytes_buf(fields.id.data(), fields.id.size());
  randombytes_buf(fields.secret.data(), fields.secret.size());
  Status status;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    status = OpenStanding(std::move(addresses));
    if (!status.ok()) return;
    records_[fields.id].secret = fields.secret;
    ++open_ids_;
    fields.num_addresses = static_cast<uint8_t>(standing_.size());
    std::copy(standing_.begin(), standing_.end(), fields.address.begin());
  }));
  AXCCL_RETURN_IF_ERROR(status);
  return Pack(fields);
}

Status Hub::CheckOpen(const IdBytes& id) {
  Hub* const hub = the_hub.load(std::memory_order_acquire);
  if (hub == nullptr || !hub->loop_->OfThisProcess()) return Status();
  Status status;
  AXCCL_RETURN_IF_ERROR(hub->loop_->Run([&] {
    const auto found = hub->records_.find(id);
    if (found != hub->records_.end() && found->second.over && !found->second.from_environment)
      status = found->second.ending;
  }));
  return status;
}

void Hub::GiveUp(const IdBytes& id, const Status& reason) {
  Hub* const hub = the_hub.load(std::memory_order_acquire);
  if (hub == nullptr || !hub->loop_->OfThisProcess()) return;
  (void)hub->loop_->Run([&] {
    const auto found = hub->records_.find(id);
    if (found == hub->records_.end() || found->second.over || found->second.from_environment) return;
    if (const std::shared_ptr<Rendezvous> meeting = found->second.current; meeting != nullptr) {
      meeting->Fail(reason);
    } else {
      hub->EndId(id, &found->second, true, reason);
    }
  });
}

Result<std::unique_ptr<Hub::Lease>> Hub::Serve(const IdFields& fields, bool* busy) {
  Status status;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] { status = ServeOnLoop(fields, busy); }));
  AXCCL_RETURN_IF_ERROR(status);
  return std::make_unique<Lease>(this, fields.id);
}

Status Hub::ServeOnLoop(const IdFields& fields, bool* busy) {
  const auto found = records_.find(fields.id);
  if (found == records_.end() || found->second.acceptor == nullptr) {
    Address address = fields.address[0];
    AXCCL_ASSIGN_OR_RETURN(std::unique_ptr<Acceptor> acceptor, Accept(&address, true, busy));
    records_[fields.id].acceptor = std::move(acceptor);
  }
  Record& record = records_[fields.id];
  record.secret = fields.secret;
  record.from_environment = true;
  record.over = false;
  ++record.leases;
  loop_->Cancel(std::exchange(record.idle_timer, 0));
  return Status();
}

void Hub::Release(const IdBytes& id) {
  (void)!loop_
      ->Run([&] {
        const auto found = records_.find(id);
        if (found == records_.end()) return;
        --found->second.leases;
        CloseWhenIdle(id, &found->second);
      })
      .ok();  // fails only in a forked child, where nothing is served
}

// Keeps an id that has failed for a while, so that late ranks get the reason. Deferring the erasure also matters
// because the last call may come from the id's own acceptor.
void Hub::CloseWhenIdle(const IdBytes& id, Record* record) {
  if (record->leases != 0 || record->current != nullptr || record->idle_timer != 0) return;
  if (!record->over) {
    records_.erase(id);
    return;
  }
  record->idle_timer = loop_->CallAt(service::Clock::now() + kEnvironmentLinger, [this, id] {
    const auto found = records_.find(id);
    if (found == records_.end()) return;
    found->second.idle_timer = 0;
    if (found->second.leases == 0 && found->second.current == nullptr) records_.erase(found);
  });
}

// Ranks of other ids, and children of a node, may come to the same listener.
void Hub::CloseUnneeded() {
  if (!nodes_.empty()) return;
  node_acceptors_.clear();
  if (open_ids_ != 0 || acceptors_.empty()) return;
  AXCCL_INFO(kBootstrap, "rendezvous: every communicator is made; listening has ended");
  acceptors_.clear();
  standing_.clear();
}

Result<NodeAddress> Hub::Attach(const std::shared_ptr<Node>& node, const Address* local) {
  NodeAddress place;
  place.node = node->id();
  Status status;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    if (local != nullptr) status = ListenAt(*local, &place);
    if (status.ok()) nodes_[node->id()] = node;
  }));
  AXCCL_RETURN_IF_ERROR(status);
  return place;
}

Status Hub::ListenAt(Address local, NodeAddress* place) {
  place->num_addresses = 1;
  const auto same = [&](const Address& other) { return other.family == local.family && other.ip == local.ip; };
  for (const Address& address : standing_) {
    if (same(address)) return place->address[0] = address, Status();
  }
  for (const auto& [address, acceptor] : node_acceptors_) {
    if (same(address)) return place->address[0] = address, Status();
  }
  AXCCL_ASSIGN_OR_RETURN(std::unique_ptr<Acceptor> acceptor, Accept(&local, false, nullptr));
  place->address[0] = local;
  node_acceptors_.emplace_back(local, std::move(acceptor));
  return Status();
}

// A node that gave up stays for a while, so that ranks on their way to it get the reason.
void Hub::Detach(const Node& node) {
  (void)!loop_
      ->Run([&] {
        const auto forget = [this, id = node.id()] {
          nodes_.erase(id);
          CloseUnneeded();
        };
        if (node.gave_up()) {
          loop_->CallAt(service::Clock::now() + kNodeLinger, forget);
        } else {
          forget();
        }
      })
      .ok();
}

const Secret* Hub::FindSecret(const Hello& hello) const {
  if (hello.role == Role::kChild) {
    const auto node = nodes_.find(hello.id);
    return node == nodes_.end() ? nullptr : &node->second->secret();
  }
  const auto found = records_.find(hello.id);
  return found == records_.end() ? nullptr : &found->second.secret;
}

void Hub::Enter(Arrival arrival) {
  const Hello& hello = arrival.hello;
  const IdBytes id = hello.id;
  if (hello.role == Role::kChild) {
    const auto node = nodes_.find(id);
    if (node != nodes_.end()) node->second->Enter(std::move(arrival.fd), arrival.cipher, hello, arrival.join);
    return;
  }
  const auto found = records_.find(id);
  if (found == records_.end()) return;  // forgotten since its hello; the rank sees the connection close
  Record& record = found->second;
  const auto link = std::make_shared<Link>(loop_, std::move(arrival.fd), arrival.cipher, Role::kHub, hello.nranks);
  if (hello.nranks < 1 || hello.nranks > kMaxRanks || hello.rank < 0 || hello.rank >= hello.nranks) {
    return link->Reject(MakeStatus(Code::kInvalidArgument,
                                   "rendezvous: rank %d of %d is out of range (at most %d ranks)", hello.rank,
                                   hello.nranks, kMaxRanks));
  }
  if (record.over && (!record.from_environment || service::Clock::now() < record.over_until)) {
    return link->Reject(record.ending);
  }
  // With NCCL_COMM_ID every communicator has the same id. Once all ranks are there, a rank that comes belongs to the
  // next.
  const bool first = record.current == nullptr || (record.from_environment && record.current->started());
  if (first) {
    record.current = std::make_shared<Rendezvous>(
        loop_, hello.nranks, arrival.join,
        [this, id](Rendezvous* meeting, const Status& status) { OnOver(id, meeting, status); });
    expected_ranks_ += static_cast<size_t>(hello.nranks);
    ++meetings_;
  }
  const std::shared_ptr<Rendezvous> meeting = record.current;
  // Check now and send the error to all ranks, rather than fail once the last ranks are stuck in the accept queue.
  if (first) {
    if (const Status room =
            service::CheckRoom(meeting->expected(), "a rendezvous of " + std::to_string(hello.nranks) + " ranks");
        !room.ok()) {
      link->Reject(room);
      return meeting->Fail(room);
    }
  }
  if (hello.version != kProtocolVersion) {
    const Status reason =
        MakeStatus(Code::kInvalidUsage,
                   "rendezvous: rank %d speaks version %u of the protocol, the process that made the id "
                   "version %u; use one version of the library on all ranks",
                   hello.rank, hello.version, kProtocolVersion);
    link->Reject(reason);
    return meeting->Fail(reason);
  }
  const Status entered = CatchAll("rendezvous", [&] { return meeting->Enter(link, hello, arrival.join), Status(); });
  if (entered.ok()) return;
  link->Reject(entered);
  meeting->Fail(entered);
}

void Hub::OnOver(const IdBytes& id, Rendezvous* meeting, const Status& status) {
  expected_ranks_ -= static_cast<size_t>(meeting->nranks());
  --meetings_;
  const auto found = records_.find(id);
  if (found == records_.end() || found->second.current.get() != meeting) return;
  Record& record = found->second;
  record.current.reset();
  if (record.from_environment) {
    record.over = !status.ok();
    record.ending = status;
    record.over_until = service::Clock::now() + kEnvironmentLinger;
    return CloseWhenIdle(id, &record);
  }
  EndId(id, &record, !status.ok(),
        !status.ok() ? status
                     : MakeStatus(Code::kInvalidUsage,
                                  "rendezvous: the unique id has already made a communicator of %d ranks; "
                                  "call ncclGetUniqueId for each communicator",
                                  meeting->nranks()));
}

void Hub::EndId(const IdBytes& id, Record* record, bool failed, Status ending) {
  record->over = true;
  record->ending = std::move(ending);
  const auto close = [this] {
    --open_ids_;
    CloseUnneeded();
  };
  if (!failed) {
    close();
  } else {
    const auto late = std::chrono::duration_cast<service::Clock::duration>(
        std::chrono::duration<double>(param::GetSeconds("AXCCL_INIT_TIMEOUT")));
    loop_->CallAt(service::Clock::now() + late, close);
  }
  remembered_.push_back(id);
  if (remembered_.size() > kRemembered) {
    records_.erase(remembered_.front());
    remembered_.pop_front();
  }
}

Result<Hub::Counts> Hub::Count() {
  Counts counts;
  AXCCL_RETURN_IF_ERROR(loop_->Run([&] {
    counts.ids = records_.size();
    counts.meetings = meetings_;
    counts.watched = loop_->watched();
    counts.timers = loop_->timers();
    counts.nodes = nodes_.size();
    const auto add = [&](const std::unique_ptr<Acceptor>& acceptor) {
      if (acceptor == nullptr) return;
      counts.guests += acceptor->guests();
      ++counts.listeners;
    };
    for (const auto& [address, acceptor] : node_acceptors_) add(acceptor);
    for (const auto& acceptor : acceptors_) add(acceptor);
    for (const auto& [id, record] : records_) add(record.acceptor);
  }));
  return counts;
}

}  // namespace axccl::boot
