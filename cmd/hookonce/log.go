package main

import "log/slog"

// logger writes to stderr, as LOG_LEVEL and LOG_FORMAT say.
func (p *program) logger(c *Config) *slog.Logger {
	var level slog.Level
	level.UnmarshalText([]byte(c.LogLevel)) // validated with the rest of the configuration
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(p.stderr, options))
	}
	return slog.New(slog.NewJSONHandler(p.stderr, options))
}
