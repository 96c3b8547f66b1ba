<?php
// Settings of one WordPress for tests. realcms writes settings.php beside this file.
require __DIR__ . '/settings.php';
define('DB_NAME', 'wordpress');
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:' . REALCMS_SOCKET);
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
foreach (['AUTH_KEY', 'SECURE_AUTH_KEY', 'LOGGED_IN_KEY', 'NONCE_KEY', 'AUTH_SALT', 'SECURE_AUTH_SALT',
          'LOGGED_IN_SALT', 'NONCE_SALT'] as $name) {
    define($name, hash('sha256', REALCMS_SECRET . $name));
}
define('WP_HOME', REALCMS_URL);
define('WP_SITEURL', REALCMS_URL);
define('WP_ENVIRONMENT_TYPE', 'local'); // application passwords without TLS
define('DISABLE_WP_CRON', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('WP_DEBUG', false);
$table_prefix = 'wp_';
if (!defined('ABSPATH')) {
    define('ABSPATH', __DIR__ . '/');
}
require_once ABSPATH . 'wp-settings.php';
