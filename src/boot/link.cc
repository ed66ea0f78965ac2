#include "src/boot/link.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/boot/tcp.h"

namespace axccl::boot {
namespace {

constexpr std::chrono::seconds kFinishTime{3};
constexpr std::chrono::milliseconds kAgain{5};

}  // namespace

Link::Link(service::Loop* loop, service::Fd fd, const FrameCipher& cipher, Role receiver, int nranks)
    : loop_(loop), fd_(std::move(fd)), cipher_(cipher), receiver_(receiver), nranks_(nranks) {}

Status Link::Start(std::shared_ptr<LinkOwner> owner, int rank) {
  owner_ = std::move(owner);
  rank_ = rank;
  TuneSocket(fd_.get(), nranks_);
  AXCCL_RETURN_IF_ERROR(
      loop_->Watch(fd_.get(), EPOLLIN, [self = shared_from_this()](uint32_t events) { self->OnEvent(events); }));
  started_ = true;
  return Status();
}

void Link::OnEvent(uint32_t events) {
  const Lock keep = shared_from_this();
  if ((events & EPOLLOUT) != 0) Flush();
  while (fd_ && ReadSome()) {
  }
}

bool Link::ReadSome() {
  const bool in_header = read_ < sizeof header_;
  std::byte* const to =
      in_header ? reinterpret_cast<std::byte*>(&header_) + read_ : payload_.data() + (read_ - sizeof header_);
  const size_t want = in_header ? sizeof header_ - read_ : payload_.size() - (read_ - sizeof header_);
  const ssize_t n = recv(fd_.get(), to, want, MSG_DONTWAIT);
  if (n < 0) {
    if (errno == EINTR) return true;
    if (errno == EAGAIN) return false;
    Lost(std::string("its connection broke (") + strerror(errno) + ")");
    return false;
  }
  if (n == 0) {
    Lost("its connection closed");
    return false;
  }
  read_ += static_cast<size_t>(n);
  if (read_ < sizeof header_) return true;
  if (read_ == sizeof header_ && in_header) {
    size_t limit;
    if (!PayloadLimit(receiver_, header_.type, nranks_, &limit) || header_.bytes > limit) {
      Lost("it sent a malformed frame");
      return false;
    }
    payload_.resize(header_.bytes);
  }
  return read_ < sizeof header_ + payload_.size() || HandleFrame();
}

bool Link::HandleFrame() {
  read_ = 0;
  if (!cipher_.Open(header_, payload_)) {
    Lost("it sent a frame that is not authentic");
    return false;
  }
  const std::shared_ptr<LinkOwner> owner = owner_;  // it may detach during the call
  if (owner != nullptr) owner->OnFrame(rank_, header_.type, payload_);
  return static_cast<bool>(fd_);
}

void Link::Send(FrameType type, std::span<const std::byte> payload) {
  if (!fd_ || finishing_) return;
  const FrameHeader header = cipher_.Seal(type, payload);
  std::vector<std::byte> frame(sizeof header + payload.size());
  std::memcpy(frame.data(), &header, sizeof header);
  std::copy(payload.begin(), payload.end(), frame.begin() + sizeof header);
  queue_.push_back(std::move(frame));
  if (queue_.size() == 1) Flush();
}

void Link::SendError(const Status& reason) {
  const std::string payload = EncodeError(reason);
  Send(FrameType::kError, std::as_bytes(std::span(payload)));
}

void Link::End(const Status& reason) {
  const Lock keep = shared_from_this();
  owner_.reset();
  const Status sent = CatchAll("rendezvous", [&] { return SendError(reason), Finish(), Status(); });
  if (!sent.ok()) Close();
}

void Link::Reject(const Status& reason) {
  const Status started = CatchAll("rendezvous", [&] { return started_ ? Status() : Start(nullptr, -1); });
  if (started.ok()) End(reason);  // otherwise no code could wait for it, and the peer sees the connection close
}

void Link::Flush() {
  while (fd_ && !queue_.empty()) {
    const std::vector<std::byte>& frame = queue_.front();
    const ssize_t n = send(fd_.get(), frame.data() + written_, frame.size() - written_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      // The read side reports a broken connection, once everything that the peer sent has been read.
      if (errno == EAGAIN) (void)!loop_->Modify(fd_.get(), EPOLLIN | EPOLLOUT).ok();
      if (OutOfBuffers(errno)) FlushAgain();
      return;
    }
    written_ += static_cast<size_t>(n);
    if (written_ < frame.size()) continue;
    written_ = 0;
    queue_.pop_front();
    if (!queue_.empty()) continue;
    (void)!loop_->Modify(fd_.get(), EPOLLIN).ok();
    if (const std::shared_ptr<LinkOwner> owner = owner_) owner->OnSent(rank_);
  }
  if (fd_ && finishing_) shutdown(fd_.get(), SHUT_WR);
}

// No event announces that the kernel has memory again.
void Link::FlushAgain() {
  if (again_timer_ != 0) return;
  again_timer_ = loop_->CallAt(service::Clock::now() + kAgain, [self = shared_from_this()] {
    self->again_timer_ = 0;
    self->Flush();
  });
}

void Link::Finish() {
  owner_.reset();
  if (!fd_ || finishing_) return;
  finishing_ = true;
  finish_timer_ = loop_->CallAt(service::Clock::now() + kFinishTime, [self = shared_from_this()] { self->Close(); });
  if (queue_.empty()) Flush();
}

void Link::Close() {
  owner_.reset();
  if (!fd_) return;
  const Lock keep = shared_from_this();
  loop_->Cancel(std::exchange(finish_timer_, 0));
  loop_->Cancel(std::exchange(again_timer_, 0));
  loop_->Unwatch(fd_.get());
  fd_.Close();
}

void Link::Lost(const std::string& reason) {
  const Lock keep = shared_from_this();
  const std::shared_ptr<LinkOwner> owner = std::move(owner_);
  Close();
  if (owner != nullptr) owner->OnClosed(rank_, reason);
}

}  // namespace axccl::boot
