// A rank's side of a rendezvous at one hub: blocking calls on the rank's own thread.
#include <algorithm>
#include <span>
#include <utility>

#include "src/base/log.h"
#include "src/boot/session.h"

namespace axccl::boot {
namespace {

class Client : public Session {
 public:
  Client(const IdFields& id, int rank, int nranks, const Patience& patience)
      : id_(id), rank_(rank), nranks_(nranks), patience_(patience), dial_(id, Role::kRank, rank, nranks, patience) {}

  ~Client() override {
    if (!dial_ || !failure_.ok() || service::Forked()) return;
    // If kLeave cannot be sent, the end of the connection has the same effect.
    (void)CatchAll("rendezvous", [&] { return dial_.Send(FrameType::kLeave, {}); }).ok();
  }

  Status Join();
  Status AllGather(const void* mine, size_t bytes, void* all) override;
  void Fail(const Status& reason) override;

 private:
  // Remembers the first failure and sends it to the others, which may not know it yet.
  Status Failed(const Status& status);

  const IdFields id_;
  const int rank_;
  const int nranks_;
  const Patience patience_;
  std::unique_ptr<Hub::Lease> lease_;
  Dial dial_;
  Status failure_;
};

Status Client::Join() {
  AXCCL_RETURN_IF_ERROR(Hub::CheckOpen(id_.id));
  AXCCL_ASSIGN_OR_RETURN(lease_, ServeWhereDue(id_, rank_, nranks_, patience_));
  Status status = dial_.Enter(nullptr);
  if (status.ok()) status = dial_.Receive(FrameType::kStart, {});
  if (!status.ok()) return Failed(status);
  AXCCL_INFO(kBootstrap, "rendezvous: rank %d of %d joined at %s", rank_, nranks_, ToText(id_.address[0]).c_str());
  return Status();
}

Status Client::Failed(const Status& status) {
  if (!failure_.ok()) return failure_;
  failure_ = status;
  // Best effort, at once: the connection may be what failed.
  if (!dial_) return failure_;
  const std::string payload = EncodeError(status);
  dial_.SendLast(FrameType::kError, std::as_bytes(std::span(payload)));
  return failure_;
}

Status Client::AllGather(const void* mine, size_t bytes, void* all) {
  AXCCL_RETURN_IF_ERROR(service::CheckNotForked("rendezvous"));
  AXCCL_RETURN_IF_ERROR(failure_);
  if (bytes == 0 || bytes > kMaxContribution) {
    return MakeStatus(Code::kInternalError, "rendezvous: exchange of %zu bytes, allowed are 1 to %zu", bytes,
                      kMaxContribution);
  }
  Status status;
  if (Clock::now() >= patience_.deadline) {
    status = WaitFailed(service::Wait::kTimeout, rank_, nranks_, "", "about to exchange addresses");
  } else {
    status = dial_.Send(FrameType::kContribute, std::span(static_cast<const std::byte*>(mine), bytes));
  }
  if (status.ok() || status.code() == Code::kRemoteError) {
    // If the connection breaks while we send, the hub's reason may still be readable.
    Status received = dial_.Receive(FrameType::kGathered, std::span(static_cast<std::byte*>(all), bytes * nranks_));
    if (status.ok() || received.code() != Code::kOk) status = std::move(received);
  }
  return status.ok() ? status : Failed(status);
}

void Client::Fail(const Status& reason) {
  if (!service::Forked()) (void)!Failed(reason).ok();
}

}  // namespace

Result<std::unique_ptr<Session>> JoinStar(const IdFields& id, int rank, int nranks, const Patience& patience) {
  auto client = std::make_unique<Client>(id, rank, nranks, patience);
  AXCCL_RETURN_IF_ERROR(client->Join());
  return std::unique_ptr<Session>(std::move(client));
}

}  // namespace axccl::boot
