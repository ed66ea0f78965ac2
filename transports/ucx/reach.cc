#include "transports/ucx/reach.h"

#include <sys/mman.h>

#include <chrono>
#include <utility>

#include "src/base/format.h"
#include "src/base/log.h"

namespace axccl::ucx {
namespace {

constexpr std::chrono::milliseconds kLook(5);  // while waiting for a flush
constexpr uint32_t kOwnerDied = 0x40000000u;   // what the kernel sets in a robust futex

}  // namespace

class Reach::Mirror final : public transport::PeerProcess {
 public:
  static Result<std::unique_ptr<Mirror>> Create(const ConnectOptions& options) {
    auto mirror = std::make_unique<Mirror>();
    mirror->pid_ = options.pid;
    mirror->heap_bytes_ = kBlockOffset + options.block_bytes;
    AXCCL_ASSIGN_OR_RETURN(mirror->heap_, MapMirror(mirror->heap_bytes_, options.peer));
    return mirror;
  }
  ~Mirror() override {
    if (heap_ != nullptr) munmap(heap_, heap_bytes_);
  }
  std::byte* block() const { return heap_ + kBlockOffset; }

 private:
  static constexpr uint64_t kBlockOffset = transport::kPageBytes;
  Result<std::byte*> MapMore(uint64_t, uint64_t) override { return static_cast<std::byte*>(nullptr); }
};

Reach::Reach(Worker* worker, ConnectOptions options, std::unique_ptr<Mirror> mirror)
    : transport::Reach(mirror.get(), mirror->block()),
      worker_(worker),
      options_(std::move(options)),
      mirror_(std::move(mirror)),
      block_(std::make_shared<Memory>(0, options_.block, mirror_->block(), options_.block_bytes)),
      sender_(worker, options_.comm, options_.self, options_.peer) {}

Result<std::shared_ptr<Reach>> Reach::Create(Worker* worker, ConnectOptions options) {
  AXCCL_ASSIGN_OR_RETURN(std::unique_ptr<Mirror> mirror, Mirror::Create(options));
  std::shared_ptr<Reach> reach(new Reach(worker, std::move(options), std::move(mirror)));
  std::lock_guard lock(worker->mutex());
  AXCCL_ASSIGN_OR_RETURN(reach->endpoint_, worker->EndpointTo(reach->options_.process, reach->options_.address));
  reach->sender_.Connect(reach->endpoint_, reach);
  reach->endpoint_->users.push_back(reach.get());
  worker->Register(reach->key(), reach.get());
  return reach;
}

// The last owner may be a message that has just ended, with the lock held.
Reach::~Reach() {
  if (!detached_) Detach();
}

void Reach::Detach() {
  std::lock_guard lock(worker_->mutex());
  if (std::exchange(detached_, true) || endpoint_ == nullptr) return;
  worker_->Unregister(key(), this);
  std::erase(endpoint_->users, this);
  sender_.DropDelayed();
}

Result<std::byte*> Reach::AddArea(uint64_t key, std::byte* own, uint64_t, uint64_t bytes, std::shared_ptr<Area>* area) {
  AXCCL_ASSIGN_OR_RETURN(std::shared_ptr<Memory> memory, Memory::WithMirror(key, own, bytes, options_.peer));
  std::byte* const mirror = memory->mirror();
  std::lock_guard lock(worker_->mutex());
  std::erase_if(areas_, [](const auto& entry) { return entry.second.expired(); });
  areas_[key] = memory;
  *area = std::move(memory);
  return mirror;
}

Status Reach::Read(void*, uint64_t, size_t) {
  return MakeStatus(Code::kInternalError, "rank %u on another machine is read by system call", options_.peer);
}

std::shared_ptr<Memory> Reach::Find(uint64_t area) const {
  if (area == 0) return block_;
  const auto it = areas_.find(area);
  return it != areas_.end() ? it->second.lock() : nullptr;
}

void Reach::Lose(const std::string& why) {
  sender_.DropDelayed();
  if (detached_ || lost_) return;
  lost_ = true;
  trouble_ = why;
  // The messages that these wait for will not arrive; UCX still writes to the others.
  arrivals_.Drop();
  __atomic_fetch_or(reinterpret_cast<uint32_t*>(&page()->liveness), kOwnerDied, __ATOMIC_SEQ_CST);
  options_.arrived();
}

void Reach::LoseOn(ucs_status_t status) {
  if (status != UCS_OK) Lose(worker_->ucx().ucs_status_string(status));
}

std::string Reach::Place() const { return Format("pid %u on host %s", options_.pid, options_.host.c_str()); }

std::string Reach::Trouble() const {
  std::lock_guard lock(worker_->mutex());
  return trouble_;
}

std::string Reach::DescribeLoss(int self, int peer) const {
  return Format("rank %d cannot reach rank %d (%s) any more: %s", self, peer, Place().c_str(), Trouble().c_str());
}

// ---- sending ----

void Reach::Publish(const std::shared_ptr<Area>& area, std::span<const Stretch> stretches, uint64_t line) {
  const auto memory = area != nullptr ? std::static_pointer_cast<Memory>(area) : block_;
  std::lock_guard lock(worker_->mutex());
  if (endpoint_->failed || worker_->ending()) return;
  LoseOn(sender_.Send(memory, stretches, line));
}

void Reach::SendDelayed() { LoseOn(sender_.SendDelayed()); }

// ---- receiving ----

ucs_status_t Reach::Take(const Rail& rail, const Message& came, void* data, size_t bytes, bool to_fetch) {
  if (lost_) return UCS_OK;  // given up, so its messages are ignored
  uint64_t number = 0;
  const std::shared_ptr<Memory> memory = Find(came.head.area);  // null: of a channel that is gone
  if (!arrivals_.Expects(came.head.turn, &number) || (memory != nullptr && !FitsMemory(came, memory->bytes(), bytes))) {
    Lose("it sent what is no message");
    return UCS_OK;
  }
  to_fetch = to_fetch && memory != nullptr && bytes > 0;
  if (arrivals_.IsNext(number) && !to_fetch) {
    arrivals_.Pass();
    if (memory != nullptr) memory->Store(came, data);
    if (memory != nullptr) Deliver(*memory, came.head);
    Settle();
    return UCS_OK;
  }
  auto message = std::make_shared<Incoming>();
  message->message = came;
  message->memory = memory;
  arrivals_.Hold(number, message);
  if (to_fetch) return Fetch(rail, std::move(message), data, bytes);
  message->here = true;
  if (memory != nullptr && bytes >= kLargeBytes) {
    memory->Store(came, data);
  } else if (memory != nullptr) {
    const auto* const from = static_cast<const std::byte*>(data);
    message->kept.assign(from, from + bytes);
  }
  return UCS_OK;
}

ucs_status_t Reach::Fetch(const Rail& rail, std::shared_ptr<Incoming> message, void* data, size_t bytes) {
  for (const WireStretch& stretch : message->message.stretches())
    message->places.push_back({message->memory->PlaceOf(stretch), stretch.bytes});
  message->owner = shared_from_this();
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = OnFetched;
  param.user_data = message.get();
  void* to = message->places[0].buffer;
  size_t count = bytes;
  if (message->places.size() > 1) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = ucp_dt_make_iov();
    to = message->places.data();
    count = message->places.size();
  }
  const ucs_status_ptr_t request = worker_->ucx().ucp_am_recv_data_nbx(rail.handle(), data, to, count, &param);
  if (UCS_PTR_IS_ERR(request)) {
    message->owner = nullptr;
    LoseOn(UCS_PTR_STATUS(request));
    return UCS_INPROGRESS;
  }
  message->here = request == nullptr;
  if (message->here) {
    message->owner = nullptr;
    Settle();
  } else {
    fetching_.fetch_add(1, std::memory_order_relaxed);
  }
  return UCS_INPROGRESS;
}

void Reach::OnFetched(void* request, ucs_status_t status, size_t, void* arg) {
  auto* const message = static_cast<Incoming*>(arg);
  const std::shared_ptr<Reach> self = std::move(message->owner);
  self->worker_->ucx().ucp_request_free(request);
  self->fetching_.fetch_sub(1, std::memory_order_release);
  if (status != UCS_OK) return self->LoseOn(status);
  message->here = true;
  self->Settle();
}

// Applies all messages up to the first that is missing.
void Reach::Settle() {
  while (const std::shared_ptr<Incoming> next = arrivals_.TakeNext()) {
    if (next->flush.kind != 0) {
      AnswerFlush(next->rail, next->flush);
    } else if (!detached_ && next->memory != nullptr) {
      if (!next->kept.empty()) next->memory->Store(next->message, next->kept.data());
      Deliver(*next->memory, next->message.head);
    }
  }
}

void Reach::Deliver(const Memory& memory, const WireHeader& header) {
  memory.StoreLine(header);
  options_.arrived();
}

// ---- flushes ----

void Reach::TakeControl(const Rail& rail, const WireControl& control) {
  if (control.kind == WireControl::kFlushed) {
    if (control.number > flushed_ && control.number <= flushes_) flushed_ = control.number;
    worker_->changed().notify_all();
    return;
  }
  if (control.kind != WireControl::kFlush) return;
  if (lost_) return AnswerFlush(&rail, control);
  uint64_t number = 0;
  if (!arrivals_.Expects(control.turn, &number)) return Lose("it sent what is no message");
  auto flush = std::make_shared<Incoming>();
  flush->flush = control;
  flush->rail = &rail;
  flush->here = true;
  arrivals_.Hold(number, std::move(flush));
  Settle();
}

// Uses the rail on which the flush arrived, so that it has been used in both directions.
void Reach::AnswerFlush(const Rail* rail, const WireControl& flush) {
  if (!endpoint_->failed) SendControl(worker_->ucx(), endpoint_->LaneOf(rail).ep, Answer(flush));
}

// Uses every rail, so that each is known to lead to the peer and back.
void Reach::Flush(std::chrono::milliseconds patience) {
  const auto limit = std::chrono::steady_clock::now() + patience;
  std::unique_lock lock(worker_->mutex());
  if (endpoint_->failed || worker_->ending()) return;
  for (size_t lane = 0; lane < endpoint_->lanes.size(); ++lane) sender_.Flush(lane, ++flushes_);
  const uint32_t number = flushes_;
  while (flushed_ < number && !endpoint_->failed) {
    if (std::chrono::steady_clock::now() > limit) {
      AXCCL_INFO(kNet, "rank %u on another machine (pid %u) does not answer; what it was sent last may be lost",
                 options_.peer, options_.pid);
      return;
    }
    worker_->Drive();
    if (flushed_ < number) worker_->LeaveToThread();
    if (flushed_ < number) worker_->changed().wait_for(lock, kLook);
  }
}

}  // namespace axccl::ucx
