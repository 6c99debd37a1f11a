#include "report/progress_bar.h"

#include <langinfo.h>
#include <locale.h>

#include <iostream>

#include "base/terminal.h"

namespace mantissa {
namespace {

constexpr std::chrono::milliseconds kBetweenDraws(100);

// Asked without setting the locale of the process: numbers stay as they are.
bool locale_is_utf8() {
  const locale_t locale = ::newlocale(LC_CTYPE_MASK, "", nullptr);
  if (locale == nullptr) return false;  // named, but not installed
  const bool utf8 = std::string_view(::nl_langinfo_l(CODESET, locale)) == "UTF-8";
  ::freelocale(locale);
  return utf8;
}

}  // namespace

std::unique_ptr<EventListener> make_progress(const ProgressOptions& options) {
  if (options.quiet) return std::make_unique<EventListener>();
  if (takes_cursor_moves(options.fd)) return std::make_unique<ProgressBar>(options);
  return std::make_unique<ProgressLines>(std::cout);
}

ProgressBar::ProgressBar(const ProgressOptions& options, Clock clock)
    : line_(options.fd, options.group), clock_(std::move(clock)) {
  style_.blocks = locale_is_utf8();
  style_.color = may_color(options.color, options.fd);
}

void ProgressBar::started(const RunStarted& run) {
  lines_.started(run);
  numbers_.steps = run.steps;
  numbers_.token_word = run.token_word;
  tokens_per_step_ = run.tokens_per_step;
  draw();
}

void ProgressBar::ticked(const StepTick& tick) {
  ticked_at_ = clock_();
  pace_.add(tick);
  numbers_.done = tick.step + 1;
  numbers_.loss = tick.loss;
  numbers_.grad_norm = tick.grad_norm;
  numbers_.skipped = tick.skipped_total;
  const std::optional<double> steps_per_s = pace_.steps_per_s();
  if (steps_per_s) numbers_.tokens_per_s = *steps_per_s * tokens_per_step_;
  if (numbers_.done == numbers_.steps || ticked_at_ - drawn_at_ >= kBetweenDraws) draw();
}

void ProgressBar::stepped(const StepMetrics& metrics) {
  if (metrics.val_loss) pace_.add_evaluation(std::chrono::duration<double>(clock_() - ticked_at_).count());
  if (!line_.in_foreground()) {
    lines_.stepped(metrics);
  } else if (metrics.val_loss) {
    lines_.evaluated(metrics);
  } else {
    return;
  }
  draw();
}

void ProgressBar::skipped(const StepSkipped& skip) {
  lines_.skipped(skip);
  draw();
}

void ProgressBar::finished(const RunFinished& result) {
  lines_.finished(result);
  close();
}

void ProgressBar::failed(const std::string&, int) { close(); }

void ProgressBar::draw() {
  drawn_at_ = clock_();
  move_lines();
  numbers_.seconds_left = pace_.seconds_left(numbers_.steps);
  style_.columns = line_.columns() - 1;  // the last column would leave the cursor in doubt
  line_.draw(line_.in_foreground() ? bar_text(numbers_, style_) : "");
}

void ProgressBar::close() {
  move_lines();
  line_.close();
}

void ProgressBar::move_lines() {
  line_.print(text_.view());
  text_.str("");
}

}  // namespace mantissa
