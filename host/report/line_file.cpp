#include "report/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace mantissa {
namespace {

[[noreturn]] void throw_errno(const std::filesystem::path& path) {
  throw Error("cannot write " + path.string() + ": " + std::generic_category().message(errno) +
              "; need a run folder that can be written to (run.dir)");
}

}  // namespace

LineFile::LineFile(std::filesystem::path path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!file_.is_open()) throw_errno(path_);
}

void LineFile::append(std::string line) {
  line += '\n';
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(file_.get(), line.data() + done, line.size() - done);
    if (written < 0 && errno != EINTR) throw_errno(path_);
    if (written > 0) done += static_cast<size_t>(written);
  }
  check_still_there();
}

void LineFile::check_still_there() const {
  struct stat open{}, named{};
  if (::fstat(file_.get(), &open) != 0 || ::stat(path_.c_str(), &named) != 0) throw_errno(path_);
  if (open.st_ino == named.st_ino && open.st_dev == named.st_dev) return;
  throw Error("cannot write " + path_.string() + ": another file has taken its place; leave the folder of a run alone");
}

}  // namespace mantissa
