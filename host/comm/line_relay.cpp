#include "comm/line_relay.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

#include "base/terminal.h"

namespace mantissa {
namespace {

constexpr size_t kLongestLine = 1 << 20;
constexpr size_t kMostPending = 1 << 20;

// Whole lines up to PIPE_BUF, which a pipe takes in one piece once it polls writable; of a longer line its beginning.
size_t next_chunk(std::string_view pending) {
  const std::string_view head = pending.substr(0, PIPE_BUF);
  const size_t last_end = head.rfind('\n');
  return last_end == std::string_view::npos ? head.size() : last_end + 1;
}

}  // namespace

bool LineSink::is_full() const { return pending_.size() >= kMostPending; }

void LineSink::add_line(std::string_view prefix, std::string_view line) {
  pending_.append(line_start(fd_)).append(prefix).append(line) += '\n';
}

void LineSink::write_some() {
  const ssize_t written = ::write(fd_, pending_.data(), next_chunk(pending_));
  if (written >= 0) {
    pending_.erase(0, static_cast<size_t>(written));
  } else if (errno != EINTR && errno != EAGAIN) {
    pending_.clear();
  }
}

LineRelay::LineRelay(int rank, FileDescriptor source, LineSink& sink)
    : prefix_("[rank " + std::to_string(rank) + "] "), source_(std::move(source)), sink_(&sink) {}

bool LineRelay::read_some() {
  std::array<char, 16384> buffer;
  const ssize_t count = ::read(source_.get(), buffer.data(), buffer.size());
  if (count > 0) {
    take({buffer.data(), static_cast<size_t>(count)});
    return true;
  }
  if (count < 0 && errno == EINTR) return true;
  if (count == 0 || errno != EAGAIN) finish();
  return false;
}

void LineRelay::finish() {
  if (!partial_.empty()) pass_on(partial_);
  partial_.clear();
  source_.reset();
}

void LineRelay::take(std::string_view text) {
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    partial_ += text.substr(0, end);
    pass_on(partial_);
    partial_.clear();
    text.remove_prefix(end + 1);
  }
  partial_ += text;
  if (partial_.size() > kLongestLine) {
    pass_on(partial_);
    partial_.clear();
  }
}

void LineRelay::pass_on(std::string_view line) { sink_->add_line(prefix_, line); }

}  // namespace mantissa
