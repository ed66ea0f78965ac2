#include "transports/ucx/reach.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "src/base/format.h"
#include "src/base/log.h"

namespace axccl::ucx {
namespace {

using Stretch = transport::Reach::Stretch;

constexpr std::chrono::milliseconds kLook(5);  // while waiting for a flush
constexpr uint32_t kOwnerDied = 0x40000000u;   // what the kernel sets in a robust futex

// Copies the first word last, because readers take it for the number of what follows.
void CopyGuarded(std::byte* to, const std::byte* from, size_t bytes) {
  uint64_t first;
  std::memcpy(&first, from, sizeof(first));
  auto* const word = reinterpret_cast<uint64_t*>(to);
  __atomic_store_n(word, uint64_t{0}, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(to + sizeof(first), from + sizeof(first), bytes - sizeof(first));
  __atomic_store_n(word, first, __ATOMIC_RELEASE);
}

}  // namespace

// The memory belongs to its user: it must stay until all messages that hold this object are over.
class Reach::Memory final : public Area {
 public:
  Memory(uint64_t key, std::byte* own, std::byte* mirror, uint64_t bytes)
      : key(key), own(own), mirror(mirror), bytes(bytes) {}
  ~Memory() override {
    if (mapped) munmap(mirror, bytes);
  }
  const uint64_t key;
  std::byte* const own;
  std::byte* const mirror;
  const uint64_t bytes;
  bool mapped = false;
};

struct Reach::Outgoing {
  std::shared_ptr<Reach> owner;
  std::shared_ptr<Memory> memory;
  std::vector<std::byte> header;
  std::vector<ucp_dt_iov_t> data;
  WireControl flush{};  // kind 0: none
  size_t lane = 0, bytes = 0;
};

struct Reach::Incoming {
  std::shared_ptr<Reach> owner;    // while data is fetched
  std::shared_ptr<Memory> memory;  // null: the message is for a channel that is gone, or is a flush
  Message message{};
  WireControl flush{};  // kind 0: none
  const Rail* rail = nullptr;
  std::vector<ucp_dt_iov_t> places;
  std::vector<std::byte> kept;  // data to be stored in its turn
  bool here = false;
};

namespace {

// Pages that receive nothing cost nothing.
Result<std::byte*> MapMirror(uint64_t bytes, uint32_t peer) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return SystemError(errno, "mapping %llu bytes for what comes from rank %u", static_cast<unsigned long long>(bytes),
                       peer);
  return static_cast<std::byte*>(memory);
}

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
      block_(std::make_shared<Memory>(0, options_.block, mirror_->block(), options_.block_bytes)) {}

Result<std::shared_ptr<Reach>> Reach::Create(Worker* worker, ConnectOptions options) {
  AXCCL_ASSIGN_OR_RETURN(std::unique_ptr<Mirror> mirror, Mirror::Create(options));
  std::shared_ptr<Reach> reach(new Reach(worker, std::move(options), std::move(mirror)));
  std::lock_guard lock(worker->mutex());
  AXCCL_ASSIGN_OR_RETURN(reach->endpoint_, worker->EndpointTo(reach->options_.process, reach->options_.address));
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
  TakeDelayed();
}

Result<std::byte*> Reach::AddArea(uint64_t key, std::byte* own, uint64_t, uint64_t bytes, std::shared_ptr<Area>* area) {
  AXCCL_ASSIGN_OR_RETURN(std::byte* const mirror, MapMirror(bytes, options_.peer));
  auto memory = std::make_shared<Memory>(key, own, mirror, bytes);
  memory->mapped = true;
  std::lock_guard lock(worker_->mutex());
  std::erase_if(areas_, [](const auto& entry) { return entry.second.expired(); });
  areas_[key] = memory;
  *area = std::move(memory);
  return mirror;
}

Status Reach::Read(void*, uint64_t, size_t) {
  return MakeStatus(Code::kInternalError, "rank %u on another machine is read by system call", options_.peer);
}

std::shared_ptr<Reach::Memory> Reach::Find(uint64_t area) const {
  if (area == 0) return block_;
  const auto it = areas_.find(area);
  return it != areas_.end() ? it->second.lock() : nullptr;
}

void Reach::Lose(const std::string& why) {
  TakeDelayed();
  if (detached_ || lost_) return;
  lost_ = true;
  trouble_ = why;
  // The messages that these wait for will not arrive; UCX still writes to the others.
  std::erase_if(incoming_, [](const auto& entry) { return entry.second->owner == nullptr; });
  __atomic_fetch_or(reinterpret_cast<uint32_t*>(&page()->liveness), kOwnerDied, __ATOMIC_SEQ_CST);
  options_.arrived();
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
  const size_t most_bytes = endpoint_->lanes[0].rail->most_bytes();
  Stretch some[kMaxStretches];
  size_t count = 0, bytes = 0;
  const auto flush = [&] {
    SendSome(memory, {some, count}, kNoLine);
    count = bytes = 0;
  };
  const auto add = [&](const Stretch& stretch) {
    if (count == kMaxStretches) flush();
    some[count++] = stretch;
    bytes += stretch.bytes;
  };
  for (Stretch rest : stretches) {
    while (!rest.guarded && bytes + rest.bytes > most_bytes) {
      const size_t room = most_bytes - std::min(bytes, most_bytes);
      const auto first = static_cast<uint32_t>(room);
      if (first > 0) add({rest.offset, first, rest.of_peer, false});
      rest.offset += first;
      rest.bytes -= first;
      flush();
    }
    add(rest);
  }
  SendSome(memory, {some, count}, line);
}

void Reach::SendSome(const std::shared_ptr<Memory>& memory, std::span<const Stretch> stretches, uint64_t line) {
  if (endpoint_->failed) return;
  std::unique_ptr<Outgoing> message = std::move(spare_);
  if (message == nullptr) message = std::make_unique<Outgoing>();
  WireHeader head{};
  head.comm = options_.comm;
  head.from = options_.self;
  head.to = options_.peer;
  head.area = memory->key;
  head.line = line;
  head.stretches = static_cast<uint32_t>(stretches.size());
  head.turn = static_cast<uint32_t>(sent_++);
  if (line != kNoLine) std::memcpy(head.line_bytes, memory->own + line, kLineBytes);
  message->header.resize(sizeof(head) + stretches.size() * sizeof(WireStretch));
  std::memcpy(message->header.data(), &head, sizeof(head));
  for (size_t i = 0; i < stretches.size(); ++i) {
    const Stretch& s = stretches[i];
    const WireStretch wire{s.offset, s.bytes, s.of_peer, s.guarded, {}};
    std::memcpy(message->header.data() + sizeof(head) + i * sizeof(wire), &wire, sizeof(wire));
    message->data.push_back({(s.of_peer ? memory->mirror : memory->own) + s.offset, s.bytes});
    message->bytes += s.bytes;
  }
  message->memory = memory;
  Post(std::move(message));
}

void Reach::Post(std::unique_ptr<Outgoing> message) {
  if (endpoint_->failed) return;
  if (!endpoint_->open()) {
    in_flight_.fetch_add(1, std::memory_order_relaxed);
    worker_->AddUnsent(1);
    delayed_.push_back(std::move(message));
    return;
  }
  if (message->flush.kind != 0) return SendControl(*worker_, endpoint_->lanes[message->lane].ep, message->flush);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = OnSent;
  param.user_data = message.get();
  const void* data = nullptr;
  size_t count = 0;
  if (message->data.size() == 1) {
    data = message->data[0].buffer;
    count = message->data[0].length;
  } else if (!message->data.empty()) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = ucp_dt_make_iov();
    data = message->data.data();
    count = message->data.size();
  }
  message->lane = endpoint_->Choose(message->bytes);
  Endpoint::Lane& lane = endpoint_->lanes[message->lane];
  const ucs_status_ptr_t request = worker_->ucx().ucp_am_send_nbx(lane.ep, kMessage, message->header.data(),
                                                                  message->header.size(), data, count, &param);
  if (request == nullptr) {  // the usual case
    message->memory = nullptr;
    message->data.clear();
    message->bytes = 0;
    spare_ = std::move(message);
    return;
  }
  if (UCS_PTR_IS_ERR(request)) return Lose(worker_->ucx().ucs_status_string(UCS_PTR_STATUS(request)));
  message->owner = shared_from_this();
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  worker_->AddUnsent(1);
  lane.unsent += message->bytes;
  message.release();
}

std::vector<std::unique_ptr<Reach::Outgoing>> Reach::TakeDelayed() {
  const auto count = static_cast<int>(delayed_.size());
  worker_->AddUnsent(-count);
  in_flight_.fetch_sub(count, std::memory_order_release);
  return std::exchange(delayed_, {});
}

void Reach::SendDelayed() {
  for (std::unique_ptr<Outgoing>& message : TakeDelayed()) Post(std::move(message));
}

void Reach::OnSent(void* request, ucs_status_t, void* arg) {
  const std::unique_ptr<Outgoing> message(static_cast<Outgoing*>(arg));
  message->owner->worker_->ucx().ucp_request_free(request);
  message->owner->worker_->AddUnsent(-1);
  message->owner->endpoint_->lanes[message->lane].unsent -= message->bytes;
  message->owner->in_flight_.fetch_sub(1, std::memory_order_release);
}

// ---- receiving ----

ucs_status_t Reach::Take(const Rail& rail, const Message& came, void* data, size_t bytes, bool to_fetch) {
  if (lost_) return UCS_OK;  // given up, so its messages are ignored
  uint64_t number = 0;
  const std::shared_ptr<Memory> memory = Find(came.head.area);  // null: of a channel that is gone
  if (!Expects(came.head.turn, &number) || (memory != nullptr && !FitsMemory(came, memory->bytes, bytes))) {
    Lose("it sent what is no message");
    return UCS_OK;
  }
  to_fetch = to_fetch && memory != nullptr && bytes > 0;
  if (number == taken_ && !to_fetch) {
    ++taken_;
    if (memory != nullptr) Store(came, *memory, data);
    if (memory != nullptr) Deliver(*memory, came.head);
    Settle();
    return UCS_OK;
  }
  auto message = std::make_shared<Incoming>();
  message->message = came;
  message->memory = memory;
  incoming_[number] = message;
  if (to_fetch) return Fetch(rail, std::move(message), data, bytes);
  message->here = true;
  if (memory != nullptr && bytes >= kLargeBytes) {
    Store(came, *memory, data);
  } else if (memory != nullptr) {
    const auto* const from = static_cast<const std::byte*>(data);
    message->kept.assign(from, from + bytes);
  }
  return UCS_OK;
}

// Whether the number is neither one that has been, nor too far ahead.
bool Reach::Expects(uint32_t turn, uint64_t* number) {
  return MayCome(turn, taken_, number) && (incoming_.empty() || !incoming_.contains(*number));
}

void Reach::Store(const Message& message, const Memory& memory, const void* data) {
  const auto* from = static_cast<const std::byte*>(data);
  for (const WireStretch& stretch : message.stretches()) {
    std::byte* const to = (stretch.of_receiver != 0 ? memory.own : memory.mirror) + stretch.offset;
    if (stretch.guarded != 0) {
      CopyGuarded(to, from, stretch.bytes);
    } else {
      std::memcpy(to, from, stretch.bytes);
    }
    from += stretch.bytes;
  }
}

ucs_status_t Reach::Fetch(const Rail& rail, std::shared_ptr<Incoming> message, void* data, size_t bytes) {
  for (const WireStretch& stretch : message->message.stretches())
    message->places.push_back(
        {(stretch.of_receiver != 0 ? message->memory->own : message->memory->mirror) + stretch.offset, stretch.bytes});
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
    Lose(worker_->ucx().ucs_status_string(UCS_PTR_STATUS(request)));
    return UCS_INPROGRESS;
  }
  message->here = request == nullptr;
  if (message->here) {
    message->owner = nullptr;
    Settle();
  } else {
    in_flight_.fetch_add(1, std::memory_order_relaxed);
  }
  return UCS_INPROGRESS;
}

void Reach::OnFetched(void* request, ucs_status_t status, size_t, void* arg) {
  auto* const message = static_cast<Incoming*>(arg);
  const std::shared_ptr<Reach> self = std::move(message->owner);
  self->worker_->ucx().ucp_request_free(request);
  self->in_flight_.fetch_sub(1, std::memory_order_release);
  if (status != UCS_OK) return self->Lose(self->worker_->ucx().ucs_status_string(status));
  message->here = true;
  self->Settle();
}

// Applies all messages up to the first that is missing.
void Reach::Settle() {
  while (!incoming_.empty() && incoming_.begin()->first == taken_ && incoming_.begin()->second->here) {
    const std::shared_ptr<Incoming> next = std::move(incoming_.begin()->second);
    incoming_.erase(incoming_.begin());
    ++taken_;
    if (next->flush.kind != 0) {
      AnswerFlush(next->rail, next->flush);
    } else if (!detached_ && next->memory != nullptr) {
      if (!next->kept.empty()) Store(next->message, *next->memory, next->kept.data());
      Deliver(*next->memory, next->message.head);
    }
  }
}

void Reach::Deliver(const Memory& memory, const WireHeader& header) {
  if (header.line != kNoLine) {
    std::byte* const line = memory.mirror + header.line;
    uint64_t first;
    std::memcpy(&first, header.line_bytes, sizeof(first));
    std::memcpy(line + sizeof(first), header.line_bytes + sizeof(first), kLineBytes - sizeof(first));
    __atomic_store_n(reinterpret_cast<uint64_t*>(line), first, __ATOMIC_SEQ_CST);
  }
  options_.arrived();
}

// ---- flushes ----

WireControl Answer(const WireControl& flush) {
  return WireControl{flush.comm, flush.to, flush.from, WireControl::kFlushed, flush.number, 0, 0};
}

void SendControl(const Worker& worker, ucp_ep_h ep, const WireControl& control) {
  auto* const header = new WireControl(control);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER | (control.kind == WireControl::kFlush ? uint32_t{UCP_AM_SEND_FLAG_REPLY} : 0u);
  param.cb.send = [](void* request, ucs_status_t, void* sent) {
    delete static_cast<WireControl*>(sent);
    Library::Get().value()->ucp_request_free(request);
  };
  param.user_data = header;
  const ucs_status_ptr_t request =
      worker.ucx().ucp_am_send_nbx(ep, kControl, header, sizeof(*header), nullptr, 0, &param);
  if (request == nullptr || UCS_PTR_IS_ERR(request)) delete header;
}

void Reach::TakeControl(const Rail& rail, const WireControl& control) {
  if (control.kind == WireControl::kFlushed) {
    if (control.number > flushed_ && control.number <= flushes_) flushed_ = control.number;
    worker_->changed().notify_all();
    return;
  }
  if (control.kind != WireControl::kFlush) return;
  if (lost_) return AnswerFlush(&rail, control);
  uint64_t number = 0;
  if (!Expects(control.turn, &number)) return Lose("it sent what is no message");
  auto flush = std::make_shared<Incoming>();
  flush->flush = control;
  flush->rail = &rail;
  flush->here = true;
  incoming_[number] = std::move(flush);
  Settle();
}

// Uses the rail on which the flush arrived, so that it has been used in both directions.
void Reach::AnswerFlush(const Rail* rail, const WireControl& flush) {
  if (!endpoint_->failed) SendControl(*worker_, endpoint_->LaneOf(rail).ep, Answer(flush));
}

// Uses every rail, so that each is known to lead to the peer and back.
void Reach::Flush(std::chrono::milliseconds patience) {
  const auto limit = std::chrono::steady_clock::now() + patience;
  std::unique_lock lock(worker_->mutex());
  if (endpoint_->failed || worker_->ending()) return;
  for (size_t lane = 0; lane < endpoint_->lanes.size(); ++lane) {
    auto flush = std::make_unique<Outgoing>();
    flush->lane = lane;
    flush->flush = {options_.comm,
                    options_.self,
                    options_.peer,
                    WireControl::kFlush,
                    ++flushes_,
                    static_cast<uint32_t>(sent_++),
                    0};
    Post(std::move(flush));
  }
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
