// A rank's side of the rendezvous: blocking calls on the rank's own thread, bounded by deadline and abort.

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "src/base/log.h"
#include "src/base/param.h"
#include "src/base/service_fd.h"
#include "src/boot/boot.h"
#include "src/boot/hub.h"
#include "src/boot/tcp.h"
#include "src/boot/unique_id.h"
#include "src/boot/wire.h"

namespace axccl::boot {
namespace {

using service::Fd;
using service::Wait;

// The hub watches every rank's deadline and knows who is missing; its word is worth waiting a little longer for.
constexpr std::chrono::milliseconds kGrace{500};
constexpr std::chrono::milliseconds kPortTime{1000};
constexpr std::chrono::milliseconds kFirstRetry{2};
constexpr std::chrono::milliseconds kLastRetry{200};

struct Patience {
  Clock::time_point deadline;
  const std::atomic<bool>* abort;
};

// What a failed attempt to connect means.
struct Attempt {
  Status status;       // ok: connected
  bool retry = false;  // the hub may be there later
};

class Client : public Session {
 public:
  Client(const IdFields& id, int rank, int nranks, const Patience& patience)
      : id_(id), rank_(rank), nranks_(nranks), patience_(patience), cipher_(Key{}, Role::kRank) {}

  ~Client() override {
    sodium_memzero(id_.secret.data(), id_.secret.size());
    if (fd_ && failure_.ok() && !service::Forked()) (void)!Send(FrameType::kLeave, {}).ok();
  }

  Status Join();
  Status AllGather(const void* mine, size_t bytes, void* all) override;
  void Fail(const Status& reason) override;

 private:
  std::string Where() const {
    std::string text = ToText(id_.address[0]);
    if (id_.num_addresses > 1) text += " or " + ToText(id_.address[1]);
    return text;
  }
  bool from_environment() const { return (id_.flags & kFromEnvironment) != 0; }

  Status Serve();
  Status ConnectUntilDeadline();
  Attempt ConnectOnce(const Address& address);
  Attempt Greet();
  Status SendJoin(const Hello& mine, const Hello& hub);
  Status WaitFailed(Wait wait, const char* what) const;
  Status Lost(const char* what) const;
  Status SendAll(const void* data, size_t bytes, Clock::time_point deadline);
  Status ReceiveAll(void* data, size_t bytes, Clock::time_point deadline, bool* closed);
  Status Send(FrameType type, std::span<const std::byte> payload);
  // Receives a frame of `type` with exactly payload.size() bytes; an error frame becomes the status.
  Status Receive(FrameType type, std::span<std::byte> payload);
  // Remembers the first failure and, where the others may not know it yet, tells them.
  Status Failed(const Status& status, bool tell);

  IdFields id_;
  const int rank_;
  const int nranks_;
  const Patience patience_;
  std::unique_ptr<Hub::Lease> lease_;
  Fd fd_;
  FrameCipher cipher_;
  bool admitted_ = false;
  Status failure_;
};

Status Client::WaitFailed(Wait wait, const char* what) const {
  if (wait == Wait::kAborted) {
    return MakeStatus(Code::kInvalidUsage, "ncclCommInitRank: rank %d of %d: aborted by the caller while %s", rank_,
                      nranks_, what);
  }
  if (wait == Wait::kTimeout) {
    return MakeStatus(Code::kTimeout, "ncclCommInitRank: rank %d of %d: deadline passed while %s (%s)", rank_, nranks_,
                      what, Where().c_str());
  }
  return SystemError(errno, "ncclCommInitRank: rank %d of %d: poll", rank_, nranks_);
}

Status Client::Lost(const char* what) const {
  return MakeStatus(Code::kRemoteError,
                    "ncclCommInitRank: rank %d of %d: the process at %s that serves the unique id is gone "
                    "(connection lost while %s)",
                    rank_, nranks_, Where().c_str(), what);
}

Status Client::SendAll(const void* data, size_t bytes, Clock::time_point deadline) {
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes != 0) {
    const ssize_t n = send(fd_.get(), at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      at += n;
      bytes -= static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      const Wait wait = service::PollUntil(fd_.get(), POLLOUT, deadline, patience_.abort);
      if (wait != Wait::kReady) return WaitFailed(wait, "sending to the process that serves the unique id");
    } else if (errno != EINTR) {
      return Lost("sending");
    }
  }
  return Status();
}

Status Client::ReceiveAll(void* data, size_t bytes, Clock::time_point deadline, bool* closed) {
  auto* at = static_cast<std::byte*>(data);
  while (bytes != 0) {
    const ssize_t n = recv(fd_.get(), at, bytes, MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      bytes -= static_cast<size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      const Wait wait = service::PollUntil(fd_.get(), POLLIN, deadline, patience_.abort);
      if (wait != Wait::kReady) return WaitFailed(wait, "waiting for the process that serves the unique id");
    } else if (n == 0 || errno != EINTR) {
      if (closed != nullptr) *closed = true;
      return Lost("waiting for its answer");
    }
  }
  return Status();
}

Status Client::Send(FrameType type, std::span<const std::byte> payload) {
  std::vector<std::byte> frame(sizeof(FrameHeader) + payload.size());
  const FrameHeader header = cipher_.Seal(type, payload);
  std::memcpy(frame.data(), &header, sizeof header);
  std::copy(payload.begin(), payload.end(), frame.begin() + sizeof header);
  return SendAll(frame.data(), frame.size(), patience_.deadline + kGrace);
}

Status Client::Receive(FrameType type, std::span<std::byte> payload) {
  const auto deadline = patience_.deadline + kGrace;
  FrameHeader header;
  AXCCL_RETURN_IF_ERROR(ReceiveAll(&header, sizeof header, deadline, nullptr));
  size_t limit;
  if (!PayloadLimit(Role::kRank, header.type, nranks_, &limit) || header.bytes > limit) {
    return MakeStatus(Code::kRemoteError, "ncclCommInitRank: rank %d: malformed frame from %s", rank_, Where().c_str());
  }
  std::vector<std::byte> other;
  const bool expected = header.type == type && header.bytes == payload.size();
  if (!expected) {
    other.resize(header.bytes);
    payload = other;
  }
  AXCCL_RETURN_IF_ERROR(ReceiveAll(payload.data(), payload.size(), deadline, nullptr));
  if (!cipher_.Open(header, payload)) {
    return MakeStatus(Code::kRemoteError, "ncclCommInitRank: rank %d: a frame from %s is not authentic", rank_,
                      Where().c_str());
  }
  if (header.type == FrameType::kError) return DecodeError(payload);
  if (!expected) {
    return MakeStatus(Code::kRemoteError, "ncclCommInitRank: rank %d: %s sent frame type %u with %u bytes out of turn",
                      rank_, Where().c_str(), static_cast<unsigned>(header.type), header.bytes);
  }
  return Status();
}

Attempt Client::ConnectOnce(const Address& address) {
  fd_ = Fd(socket(address.family == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_) return {SystemError(errno, "ncclCommInitRank: rank %d: TCP socket", rank_)};
  TuneSocket(fd_.get());
  socklen_t bytes;
  const sockaddr_storage storage = ToSockaddr(address, &bytes);
  int error = 0;
  if (connect(fd_.get(), reinterpret_cast<const sockaddr*>(&storage), bytes) != 0 && errno != EINPROGRESS) {
    error = errno;
  } else {
    const Wait wait = service::PollUntil(fd_.get(), POLLOUT, patience_.deadline, patience_.abort);
    if (wait != Wait::kReady) return {WaitFailed(wait, "connecting to the process that serves the unique id")};
    socklen_t length = sizeof error;
    if (getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  }
  if (error == 0) return Greet();
  if (from_environment()) {
    return {SystemError(error, "ncclCommInitRank: rank %d: NCCL_COMM_ID: rank 0 does not answer at %s", rank_,
                        ToText(address).c_str()),
            true};
  }
  if (error != ECONNREFUSED) {
    return {SystemError(error,
                        "ncclCommInitRank: rank %d: connect to %s, where the process that called ncclGetUniqueId listens "
                        "(a firewall between, or set NCCL_SOCKET_IFNAME there to a network that all ranks reach)",
                        rank_, ToText(address).c_str())};
  }
  return {
      MakeStatus(Code::kRemoteError,
                 "ncclCommInitRank: rank %d: nobody listens at %s: the process that called ncclGetUniqueId is gone, or "
                 "that is not its address here (then set NCCL_SOCKET_IFNAME there to a network that all ranks reach)",
                 rank_, ToText(address).c_str())};
}

Attempt Client::Greet() {
  Hello mine, hub;
  mine.rank = rank_;
  mine.nranks = nranks_;
  mine.id = id_.id;
  FillNonce(&mine);
  bool closed = false;
  Status status = SendAll(&mine, sizeof mine, patience_.deadline);
  if (!status.ok()) return {status, status.code() == Code::kRemoteError};
  status = ReceiveAll(&hub, sizeof hub, patience_.deadline, &closed);
  if (!status.ok()) return {status, closed};  // cut while others pressed in, or restarting
  if (hub.magic != Hello::kMagic || hub.id != mine.id) {
    return {MakeStatus(Code::kRemoteError, "ncclCommInitRank: rank %d: what listens at %s is not this library", rank_,
                       Where().c_str())};
  }
  if (hub.role == Role::kUnknownId) {
    return {MakeStatus(Code::kInvalidUsage,
                       "ncclCommInitRank: rank %d: the process at %s does not know the unique id: %s", rank_,
                       Where().c_str(),
                       from_environment() ? "set the same AXCCL_SECRET on all ranks"
                                          : "it was used long ago, or the process that made it is gone")};
  }
  Proof proof;
  status = ReceiveAll(&proof, sizeof proof, patience_.deadline, nullptr);
  if (!status.ok()) return {status};
  if (hub.role != Role::kHub || !SameProof(proof, Prove(id_.secret, Role::kHub, mine, hub))) {
    return {MakeStatus(Code::kInvalidUsage,
                       "ncclCommInitRank: rank %d: the process at %s does not know the secret of the unique "
                       "id; was the id damaged on its way here, or the process replaced?",
                       rank_, Where().c_str())};
  }
  return {SendJoin(mine, hub)};
}

Status Client::SendJoin(const Hello& mine, const Hello& hub) {
  cipher_ = FrameCipher(ConnectionKey(id_.secret, mine, hub), Role::kRank);
  const Proof proof = Prove(id_.secret, Role::kRank, mine, hub);
  if (hub.version != kProtocolVersion) {
    (void)!SendAll(&proof, sizeof proof, patience_.deadline).ok();  // so that the hub can tell the other ranks
    return MakeStatus(Code::kInvalidUsage,
                      "ncclCommInitRank: rank %d speaks version %u of the rendezvous, the process at %s "
                      "version %u; use one version of the library on all ranks",
                      rank_, kProtocolVersion, Where().c_str(), hub.version);
  }
  JoinBody join;
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(patience_.deadline - Clock::now());
  join.patience_ns = static_cast<uint64_t>(std::max<int64_t>(left.count(), 0));
  join.pid = static_cast<uint32_t>(getpid());
  gethostname(join.host.data(), join.host.size() - 1);
  const auto payload = std::as_bytes(std::span(&join, 1));
  const FrameHeader header = cipher_.Seal(FrameType::kJoin, payload);
  std::array<std::byte, sizeof proof + sizeof header + sizeof join> message;
  std::memcpy(message.data(), &proof, sizeof proof);
  std::memcpy(message.data() + sizeof proof, &header, sizeof header);
  std::memcpy(message.data() + sizeof proof + sizeof header, &join, sizeof join);
  return SendAll(message.data(), message.size(), patience_.deadline);
}

Status Client::ConnectUntilDeadline() {
  for (auto pause = kFirstRetry;; pause = std::min(pause * 2, kLastRetry)) {
    Attempt attempt;
    for (int i = 0; i < id_.num_addresses; ++i) {
      attempt = ConnectOnce(id_.address[i]);
      if (attempt.status.ok()) return Status();
      if (attempt.status.code() == Code::kTimeout) return attempt.status;
    }
    fd_.Close();
    if (!attempt.retry) return attempt.status;
    const auto until = std::min(patience_.deadline, Clock::now() + pause);
    const Wait wait = service::PollUntil(-1, 0, until, patience_.abort);
    if (wait == Wait::kTimeout && until < patience_.deadline) continue;
    if (wait != Wait::kTimeout) return WaitFailed(wait, "connecting to the process that serves the unique id");
    return MakeStatus(Code::kTimeout, "%s; the deadline has passed", attempt.status.message().data());
  }
}

// A job that is restarted finds its port taken until the kernel has cleared its last run away, which takes the longer
// the more memory that had.
Status Client::Serve() {
  AXCCL_ASSIGN_OR_RETURN(Hub* const hub, Hub::Get());
  const auto give_up = std::min(patience_.deadline, Clock::now() + kPortTime);
  for (;;) {
    bool busy = false;
    Result<std::unique_ptr<Hub::Lease>> lease = hub->Serve(id_, &busy);
    if (lease.ok()) {
      lease_ = std::move(lease).value();
      return Status();
    }
    if (!busy || Clock::now() >= give_up) return lease.status();
    const auto retry = std::min(give_up, Clock::now() + std::chrono::milliseconds(10));
    const Wait wait = service::PollUntil(-1, 0, retry, patience_.abort);
    if (wait != Wait::kTimeout) return WaitFailed(wait, "waiting for the port of NCCL_COMM_ID");
  }
}

Status Client::Join() {
  if (from_environment() && rank_ == 0) AXCCL_RETURN_IF_ERROR(Serve());
  AXCCL_RETURN_IF_ERROR(ConnectUntilDeadline());
  admitted_ = true;
  const Status status = Receive(FrameType::kStart, {});
  if (!status.ok()) return Failed(status, true);
  AXCCL_INFO(kBootstrap, "rendezvous: rank %d of %d joined at %s", rank_, nranks_, Where().c_str());
  return Status();
}

Status Client::Failed(const Status& status, bool tell) {
  if (failure_.ok()) {
    failure_ = status;
    if (tell && admitted_) {
      const std::string payload = EncodeError(status);
      // Best effort, at once: the connection may be what failed.
      const auto bytes = std::as_bytes(std::span(payload));
      std::vector<std::byte> frame(sizeof(FrameHeader) + bytes.size());
      const FrameHeader header = cipher_.Seal(FrameType::kError, bytes);
      std::memcpy(frame.data(), &header, sizeof header);
      std::copy(bytes.begin(), bytes.end(), frame.begin() + sizeof header);
      (void)!send(fd_.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    fd_.Close();
  }
  return failure_;
}

Status Client::AllGather(const void* mine, size_t bytes, void* all) {
  AXCCL_RETURN_IF_ERROR(service::CheckNotForked("ncclCommInitRank"));
  AXCCL_RETURN_IF_ERROR(failure_);
  if (bytes == 0 || bytes > kMaxContribution) {
    return MakeStatus(Code::kInternalError, "rendezvous: exchange of %zu bytes, allowed are 1 to %zu", bytes,
                      kMaxContribution);
  }
  Status status;
  if (Clock::now() >= patience_.deadline) {
    status = WaitFailed(Wait::kTimeout, "about to exchange addresses");
  } else {
    status = Send(FrameType::kContribute, std::span(static_cast<const std::byte*>(mine), bytes));
  }
  if (status.ok() || status.code() == Code::kRemoteError) {
    // A connection that breaks while we send may still hold the hub's reason.
    Status received = Receive(FrameType::kGathered, std::span(static_cast<std::byte*>(all), bytes * nranks_));
    if (status.ok() || received.code() != Code::kOk) status = std::move(received);
  }
  return status.ok() ? status : Failed(status, true);
}

void Client::Fail(const Status& reason) {
  if (!service::Forked()) (void)!Failed(reason, true).ok();
}

}  // namespace

Result<UniqueId> CreateUniqueId() {
  AXCCL_RETURN_IF_ERROR(service::CheckNotForked("ncclGetUniqueId"));
  if (sodium_init() < 0)
    return MakeStatus(Code::kSystemError, "ncclGetUniqueId: libsodium finds no source of randomness");
  const std::string host_port = param::Get("NCCL_COMM_ID");
  if (!host_port.empty()) return IdFromText(host_port);
  AXCCL_ASSIGN_OR_RETURN(Hub* const hub, Hub::Get());
  return hub->Create();
}

Result<std::unique_ptr<Session>> Session::Join(const UniqueId& id, int rank, int nranks, Clock::time_point deadline,
                                               const std::atomic<bool>* abort) {
  AXCCL_RETURN_IF_ERROR(service::CheckNotForked("ncclCommInitRank"));
  if (sodium_init() < 0)
    return MakeStatus(Code::kSystemError, "ncclCommInitRank: libsodium finds no source of randomness");
  if (nranks < 1 || nranks > kMaxRanks || rank < 0 || rank >= nranks) {
    return MakeStatus(Code::kInvalidArgument, "ncclCommInitRank: rank %d of nranks %d: need 0 <= rank < nranks <= %d",
                      rank, nranks, kMaxRanks);
  }
  AXCCL_ASSIGN_OR_RETURN(const IdFields fields, Unpack(id));
  auto client = std::make_unique<Client>(fields, rank, nranks, Patience{deadline, abort});
  AXCCL_RETURN_IF_ERROR(client->Join());
  return std::unique_ptr<Session>(std::move(client));
}

}  // namespace axccl::boot
