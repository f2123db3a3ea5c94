package org.slf4j.impl;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.Arrays;

import org.slf4j.ILoggerFactory;
import org.slf4j.Logger;
import org.slf4j.spi.LoggerFactoryBinder;

/** Where slf4j 1.7 looks for what logs: errors go to standard error, where a tool says in no other way why it ends, the rest nowhere. */
public final class StaticLoggerBinder implements LoggerFactoryBinder {
    private static final StaticLoggerBinder SINGLETON = new StaticLoggerBinder();
    private static final ILoggerFactory FACTORY = StaticLoggerBinder::logger;

    private StaticLoggerBinder() { }

    public static StaticLoggerBinder getSingleton() {
        return SINGLETON;
    }

    private static Logger logger(String name) {
        InvocationHandler handler = (logger, method, arguments) -> switch (method.getName()) {
            case "error" -> {
                System.err.println(name + ": " + Arrays.toString(arguments));
                yield null;
            }
            case "getName", "toString" -> name;
            case "isErrorEnabled" -> true;
            case "equals" -> logger == arguments[0];
            case "hashCode" -> name.hashCode();
            default -> method.getReturnType() == boolean.class ? false : null;
        };
        return (Logger) Proxy.newProxyInstance(Logger.class.getClassLoader(), new Class<?>[] {Logger.class}, handler);
    }

    @Override
    public ILoggerFactory getLoggerFactory() {
        return FACTORY;
    }

    @Override
    public String getLoggerFactoryClassStr() {
        return ILoggerFactory.class.getName();
    }
}
