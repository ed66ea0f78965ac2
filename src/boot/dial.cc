#include "src/boot/dial.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "src/boot/tcp.h"

namespace axccl::boot {
namespace {

using service::Fd;
using service::Wait;

constexpr std::chrono::milliseconds kFirstRetry{2};
constexpr std::chrono::milliseconds kLastRetry{200};
// The kernel reports that a host is unreachable after three lost packets (of ARP; TCP's take longer), and a switch may
// need seconds until it lets a new link through.
constexpr std::chrono::seconds kUnreachable{10};

}  // namespace

Status WaitFailed(Wait wait, int rank, int nranks, const std::string& whom, const char* what) {
  if (wait == Wait::kStopped) {
    return MakeStatus(Code::kRemoteError, "rendezvous: rank %d of %d: aborted by the caller while %s", rank, nranks,
                      what);
  }
  if (wait == Wait::kTimeout) {
    // Without a free descriptor, this process cannot accept connections of others, and may itself be the missing one.
    const Status room = service::CheckRoom(
        1, "rendezvous: rank " + std::to_string(rank) + ": deadline passed while " + what + "; taking a connection");
    if (!room.ok()) return room;
    return MakeStatus(Code::kTimeout, "rendezvous: rank %d of %d: deadline passed while %s%s%s%s", rank, nranks, what,
                      whom.empty() ? "" : " (", whom.c_str(), whom.empty() ? "" : ")");
  }
  return SystemError(errno, "rendezvous: rank %d of %d: poll", rank, nranks);
}

JoinBody Self(Clock::time_point deadline) {
  JoinBody self;
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now());
  self.patience_ns = static_cast<uint64_t>(std::max<int64_t>(left.count(), 0));
  self.pid = static_cast<uint32_t>(getpid());
  gethostname(self.host.data(), self.host.size() - 1);
  return self;
}

Dial::Dial(const IdFields& id, Role role, int rank, int nranks, const Patience& patience, std::string whom)
    : id_(id),
      role_(role),
      rank_(rank),
      nranks_(nranks),
      patience_(patience),
      whom_(std::move(whom)),
      cipher_(Key{}, Role::kRank) {
  if (whom_.empty()) whom_ = "the process at " + Where() + " that serves the unique id";
}

Dial::~Dial() { sodium_memzero(id_.secret.data(), id_.secret.size()); }

std::string Dial::Where() const {
  std::string text = ToText(id_.address[0]);
  if (id_.num_addresses > 1) text += " or " + ToText(id_.address[1]);
  return text;
}

Status Dial::Failed(Wait wait, const char* what) const { return WaitFailed(wait, rank_, nranks_, "", what); }

Status Dial::Lost(const char* what) const {
  if (admitted_) {
    return MakeStatus(Code::kRemoteError, "rendezvous: rank %d of %d: %s is gone (connection lost while %s)", rank_,
                      nranks_, whom_.c_str(), what);
  }
  return MakeStatus(Code::kRemoteError,
                    "rendezvous: rank %d of %d: %s cut the connection before it admitted this rank (while %s); it has "
                    "ended, or its port may be flooded with connections (on its machine, ss -tn lists them)",
                    rank_, nranks_, whom_.c_str(), what);
}

Status Dial::SendAll(const void* data, size_t bytes, Clock::time_point deadline) {
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes != 0) {
    const ssize_t n = send(fd_.get(), at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      at += n;
      bytes -= static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      const Wait wait = service::PollUntil(fd_.get(), POLLOUT, deadline, patience_.stop);
      if (wait != Wait::kReady) return Failed(wait, ("sending to " + whom_).c_str());
    } else if (OutOfBuffers(errno)) {
      const auto again = std::min(deadline, Clock::now() + kFirstRetry);
      const Wait wait = service::PollUntil(-1, 0, again, patience_.stop);
      if (wait != Wait::kTimeout || again == deadline) return Failed(wait, ("sending to " + whom_).c_str());
    } else if (errno != EINTR) {
      return Lost("sending");
    }
  }
  return Status();
}

Status Dial::ReceiveAll(void* data, size_t bytes, Clock::time_point deadline, bool* retry) {
  auto* at = static_cast<std::byte*>(data);
  while (bytes != 0) {
    const ssize_t n = recv(fd_.get(), at, bytes, MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      bytes -= static_cast<size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      const Wait wait = service::PollUntil(fd_.get(), POLLIN, deadline, patience_.stop);
      if (wait == Wait::kReady) continue;
      if (wait != Wait::kTimeout || Clock::now() >= patience_.deadline)
        return Failed(wait, ("waiting for " + whom_).c_str());
      if (retry != nullptr) *retry = true;
      return MakeStatus(Code::kRemoteError,
                        "rendezvous: rank %d of %d: %s takes connections and does not answer; it may be stopped, or "
                        "another program may have its port",
                        rank_, nranks_, whom_.c_str());
    } else if (n == 0 || errno != EINTR) {
      if (retry != nullptr) *retry = true;
      return Lost("waiting for its answer");
    }
  }
  return Status();
}

std::vector<std::byte> Dial::Seal(FrameType type, std::span<const std::byte> payload) {
  std::vector<std::byte> frame(sizeof(FrameHeader) + payload.size());
  const FrameHeader header = cipher_.Seal(type, payload);
  std::memcpy(frame.data(), &header, sizeof header);
  std::copy(payload.begin(), payload.end(), frame.begin() + sizeof header);
  return frame;
}

Status Dial::Send(FrameType type, std::span<const std::byte> payload) {
  const std::vector<std::byte> frame = Seal(type, payload);
  return SendAll(frame.data(), frame.size(), patience_.deadline + kGrace);
}

void Dial::SendLast(FrameType type, std::span<const std::byte> payload) {
  const std::vector<std::byte> frame = Seal(type, payload);
  (void)!send(fd_.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  fd_.Close();
}

Status Dial::Receive(FrameType type, std::span<std::byte> payload, bool* retry) {
  const auto deadline = patience_.deadline + kGrace;
  FrameHeader header;
  AXCCL_RETURN_IF_ERROR(ReceiveAll(&header, sizeof header, deadline, retry));
  size_t limit;
  if (!PayloadLimit(Role::kRank, header.type, nranks_, &limit) || header.bytes > limit) {
    return MakeStatus(Code::kRemoteError, "rendezvous: rank %d: malformed frame from %s", rank_, Where().c_str());
  }
  std::vector<std::byte> other;
  const bool expected = header.type == type && header.bytes == payload.size();
  if (!expected) {
    other.resize(header.bytes);
    payload = other;
  }
  AXCCL_RETURN_IF_ERROR(ReceiveAll(payload.data(), payload.size(), deadline, nullptr));
  if (!cipher_.Open(header, payload)) {
    return MakeStatus(Code::kRemoteError, "rendezvous: rank %d: a frame from %s is not authentic", rank_,
                      Where().c_str());
  }
  if (header.type == FrameType::kError) return DecodeError(payload);
  if (!expected) {
    return MakeStatus(Code::kRemoteError, "rendezvous: rank %d: %s sent frame type %u with %u bytes out of turn", rank_,
                      Where().c_str(), static_cast<unsigned>(header.type), header.bytes);
  }
  return Status();
}

Dial::Attempt Dial::ConnectOnce(const Address& address) {
  fd_ = Fd(socket(address.family == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_) return {service::OpenError(errno, "rendezvous: rank " + std::to_string(rank_) + ": a TCP socket")};
  // The kernel tries for 31 s. On a network that loses every tenth packet, two losses in a row are common.
  constexpr int kSynTries = 4;
  (void)setsockopt(fd_.get(), IPPROTO_TCP, TCP_SYNCNT, &kSynTries, sizeof kSynTries);
  socklen_t bytes;
  const sockaddr_storage storage = ToSockaddr(address, &bytes);
  int error = 0;
  bool lost = false;
  if (connect(fd_.get(), reinterpret_cast<const sockaddr*>(&storage), bytes) != 0 && errno != EINPROGRESS) {
    error = errno;
  } else {
    const Wait wait = service::PollUntil(fd_.get(), POLLOUT, patience_.deadline, patience_.stop);
    if (wait != Wait::kReady) {
      return {Failed(wait, ("connecting to " + whom_ +
                            " (no answer: is there a firewall, or is it another network? "
                            "NCCL_SOCKET_IFNAME chooses where it listens)")
                               .c_str())};
    }
    socklen_t length = sizeof error;
    if (getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    lost = error == EHOSTUNREACH && Clock::now() - patience_.start < kUnreachable;
  }
  if (error == 0) {
    TuneSocket(fd_.get(), nranks_);  // only now: its timeouts would end the attempts to connect
    return Greet();
  }
  return {ConnectFailed(address, error), from_environment() || lost};
}

Status Dial::ConnectFailed(const Address& address, int error) const {
  const std::string at = ToText(address);
  if (from_environment()) {
    return SystemError(error, "rendezvous: rank %d: NCCL_COMM_ID: rank 0 does not answer at %s", rank_, at.c_str());
  }
  if (role_ == Role::kChild)
    return SystemError(error, "rendezvous: rank %d: cannot connect to %s", rank_, whom_.c_str());
  if (error != ECONNREFUSED) {
    return SystemError(
        error,
        "rendezvous: rank %d: cannot connect to %s, where the process that called ncclGetUniqueId listens; check for a "
        "firewall, or set NCCL_SOCKET_IFNAME there to a network that all ranks reach",
        rank_, at.c_str());
  }
  return MakeStatus(
      Code::kRemoteError,
      "rendezvous: rank %d: nothing listens at %s: the id has made its communicator already (call "
      "ncclGetUniqueId for each), or the process that called ncclGetUniqueId is gone, or that is not its address "
      "here (then set NCCL_SOCKET_IFNAME there to a network that all ranks reach)",
      rank_, at.c_str());
}

Dial::Attempt Dial::Greet() {
  mine_ = Hello();
  mine_.role = role_;
  mine_.rank = rank_;
  mine_.nranks = nranks_;
  mine_.id = id_.id;
  FillNonce(&mine_);
  // What has the port may be another program, which keeps the connection and leaves the port to the server.
  const auto limit = std::min(patience_.deadline, Clock::now() + greeting_);
  bool retry = false;
  Status status = SendAll(&mine_, sizeof mine_, patience_.deadline);
  if (!status.ok()) return {status, status.code() == Code::kRemoteError};
  status = ReceiveAll(&hub_, sizeof hub_, limit, &retry);
  // Retried if it was cut in favour of younger connections, or the server restarts, or does not answer.
  Attempt attempt = status.ok() ? CheckGreeting(hub_, limit) : Attempt{status, retry};
  if (!attempt.status.ok() && Clock::now() >= limit) greeting_ = std::min(2 * greeting_, kLongestGreeting);
  return attempt;
}

Dial::Attempt Dial::CheckGreeting(const Hello& hub, Clock::time_point limit) {
  if (hub.magic != Hello::kMagic || hub.id != mine_.id) {
    return {MakeStatus(Code::kRemoteError, "rendezvous: rank %d: what listens at %s is not this library", rank_,
                       Where().c_str())};
  }
  if (hub.role == Role::kUnknownId) {
    return {MakeStatus(Code::kInvalidUsage, "rendezvous: rank %d: the process at %s does not know the unique id: %s",
                       rank_, Where().c_str(),
                       from_environment()
                           ? "set the same AXCCL_SECRET_FILE on all ranks (without one, all must belong to one "
                             "user), and another port if another job has this"
                           : "it was used long ago, or the process that made it is gone")};
  }
  Proof proof;
  bool retry = false;
  const Status status = ReceiveAll(&proof, sizeof proof, limit, &retry);
  if (!status.ok()) return {status, retry};
  if (hub.role != Role::kHub || !SameProof(proof, Prove(id_.secret, Role::kHub, mine_, hub))) {
    return {MakeStatus(Code::kInvalidUsage,
                       "rendezvous: rank %d: the process at %s does not know the secret of the unique "
                       "id; was the id damaged on its way here, or the process replaced?",
                       rank_, Where().c_str())};
  }
  cipher_ = FrameCipher(ConnectionKey(id_.secret, mine_, hub), Role::kRank);
  return {};
}

Status Dial::SendJoin(JoinBody join) {
  const Proof proof = Prove(id_.secret, Role::kRank, mine_, hub_);
  if (hub_.version != kProtocolVersion) {
    (void)!SendAll(&proof, sizeof proof, patience_.deadline).ok();  // so that the hub can report it to the other ranks
    return MakeStatus(Code::kInvalidUsage,
                      "rendezvous: rank %d speaks version %u of the protocol, the process at %s "
                      "version %u; use one version of the library on all ranks",
                      rank_, kProtocolVersion, Where().c_str(), hub_.version);
  }
  const JoinBody self = Self(patience_.deadline);
  join.patience_ns = self.patience_ns;
  join.pid = self.pid;
  join.host = self.host;
  const auto payload = std::as_bytes(std::span(&join, 1));
  const FrameHeader header = cipher_.Seal(FrameType::kJoin, payload);
  std::array<std::byte, sizeof proof + sizeof header + sizeof join> message;
  std::memcpy(message.data(), &proof, sizeof proof);
  std::memcpy(message.data() + sizeof proof, &header, sizeof header);
  std::memcpy(message.data() + sizeof proof + sizeof header, &join, sizeof join);
  return SendAll(message.data(), message.size(), patience_.deadline);
}

Status Dial::Connect() {
  for (auto pause = kFirstRetry;; pause = std::min(pause * 2, kLastRetry)) {
    Attempt attempt;
    bool retry = false;
    for (size_t i = 0; i < id_.num_addresses; ++i) {
      attempt = ConnectOnce(id_.address[i]);
      if (attempt.status.ok()) return Status();
      if (attempt.status.code() == Code::kTimeout) return attempt.status;
      retry |= attempt.retry;
    }
    fd_.Close();
    if (!retry) return attempt.status;
    const auto until = std::min(patience_.deadline, Clock::now() + pause);
    const Wait wait = service::PollUntil(-1, 0, until, patience_.stop);
    if (wait == Wait::kTimeout && until < patience_.deadline) continue;
    if (wait != Wait::kTimeout) return Failed(wait, ("connecting to " + whom_).c_str());
    return MakeStatus(Code::kTimeout, "%s; the deadline has passed", attempt.status.message().data());
  }
}

Status Dial::Enter(const std::function<Status(JoinBody*)>& fill) {
  for (auto pause = kFirstRetry;; pause = std::min(pause * 2, kLastRetry)) {
    AXCCL_RETURN_IF_ERROR(Connect());
    JoinBody join;
    if (fill != nullptr) AXCCL_RETURN_IF_ERROR(fill(&join));
    AXCCL_RETURN_IF_ERROR(SendJoin(join));
    bool retry = false;
    const Status status = Receive(FrameType::kAdmitted, {}, &retry);
    admitted_ = status.ok();
    if (admitted_) return status;
    if (!retry) {
      // The hub may have admitted this rank, and must not take it for dead.
      const std::string reason = EncodeError(status);
      SendLast(FrameType::kError, std::as_bytes(std::span(reason)));
      return status;
    }
    const auto until = std::min(patience_.deadline, Clock::now() + pause);
    const Wait wait = service::PollUntil(-1, 0, until, patience_.stop);
    if (wait != Wait::kTimeout) return Failed(wait, ("being let in by " + whom_).c_str());
    if (until == patience_.deadline) return status;
  }
}

Result<Address> Dial::LocalAddress() const {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  if (getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) {
    return SystemError(errno, "rendezvous: rank %d: getsockname", rank_);
  }
  Address address = FromSockaddr(reinterpret_cast<const sockaddr*>(&storage));
  address.port = 0;
  return address;
}

}  // namespace axccl::boot
