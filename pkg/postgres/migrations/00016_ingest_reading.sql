-- What reads over HTTP need: indexes of tables that are large by then. 00020 builds them, beside those who write.

-- +goose Up

-- +goose Down
